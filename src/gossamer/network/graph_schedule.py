"""Graphs that change: which links of a network are in use in a round.

A round is a step of the simulator in steps, and an agent's own iteration on a testbed. The network has every link that
is ever used. In a round agents send over the links that are in use, and mix what they hold of the neighbours at their
other ends, with the weights of the graph of this round.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import torch

from gossamer.errors import UserError
from gossamer.network.delay import steps_until_negligible
from gossamer.network.links import Links
from gossamer.seeding import generator
from gossamer.shapes import Bool, Int, Tensor

LONGEST_GAP = 64  # rounds without use for which a message is kept, beyond the longest delay


@dataclass(frozen=True, eq=False)
class RoundGraph:
    """What a schedule says of one round.

    Attributes:
        used: the links in use; both directions of a link or none.
        up: the agents that are not away; None means all. Their links are not in use.
        deaf: the links over which nothing is heard: what arrives or is held is lost. None means no link.
    """

    used: Bool[Tensor, " e"]
    up: Bool[Tensor, " n"] | None = None
    deaf: Bool[Tensor, " e"] | None = None


GraphOfRound = Callable[[int], RoundGraph]


class GraphSchedule(ABC):
    """Which links of a network are in use, round by round: a function of the seed and the round."""

    def check(self, links: Links) -> None:  # noqa: B027 - some fit any network
        """Raise UserError if the network lacks a link of the schedule."""

    @abstractmethod
    def begin(self, links: Links, seed: int) -> GraphOfRound:
        """Return the function that gives the graph of a round."""

    @abstractmethod
    def longest_gap(self, links: Links) -> int:
        """Return the number of rounds between two uses of a link that is not exceeded, or rarely."""

    @abstractmethod
    def spec(self) -> str:
        """Return the text that `parse_graph_schedule` reads this schedule from."""

    def copied_to(self, folder: Path) -> str:
        """Copy the schedule's file, if any, into a folder. Return the text that reads it from there."""
        return self.spec()

    @property
    def has_absences(self) -> bool:
        """Whether agents or links go away for a time given in steps."""
        return False


@dataclass(frozen=True)
class OnePeer(GraphSchedule):
    """The one-peer exponential graph: in round r the links at distance 2^(r mod log2 n).

    With n a power of two agent i meets agent i XOR 2^j alone, so log2 n rounds of averaging give the exact mean. With
    another n it meets both i + 2^j and i - 2^j, modulo n: links go both ways.
    """

    def check(self, links: Links) -> None:
        for pairs in _one_peer_pairs(links.shape[0]):
            check_linked(self.spec(), links, pairs)

    def begin(self, links: Links, seed: int) -> GraphOfRound:
        graphs = [RoundGraph(both_ways(links, pairs)) for pairs in _one_peer_pairs(links.shape[0])]
        nobody = RoundGraph(torch.zeros(len(links), dtype=torch.bool))  # of a lone agent
        return lambda round_number: graphs[round_number % len(graphs)] if graphs else nobody

    def longest_gap(self, links: Links) -> int:
        return max(0, len(_one_peer_pairs(links.shape[0])) - 1)

    def spec(self) -> str:
        return "one-peer"


def _one_peer_pairs(count: int) -> list[Int[Tensor, "m 2"]]:
    """Return the pairs of each round of a period."""
    agents = torch.arange(count)
    distances = [2**j for j in range((count - 1).bit_length())]
    whole = count & (count - 1) == 0
    return [torch.stack([agents, agents ^ way if whole else (agents + way) % count], dim=1) for way in distances]


@dataclass(frozen=True)
class RandomMatching(GraphSchedule):
    """A random maximal matching of the links in each round; on a complete graph of an even size everyone has a partner.

    Links are taken in a random order, unless an end already has a partner. On a complete graph all perfect matchings
    are equally likely.
    """

    def begin(self, links: Links, seed: int) -> GraphOfRound:
        return lambda round_number: RoundGraph(_matched(links, _order_of_links(links, seed, round_number)))

    def longest_gap(self, links: Links) -> int:
        # The link that comes first among all links of its two ends is taken.
        most = int(links.starts.diff().max())
        return steps_until_negligible(1 - 1 / max(1, 2 * most - 1))

    def spec(self) -> str:
        return "matching"


def _order_of_links(links: Links, seed: int, round_number: int) -> Int[Tensor, " e"]:
    """Return each link's place in a random order, the same for both directions."""
    order = torch.randperm(len(links), generator=generator(seed, "matching", round_number))
    return torch.minimum(order, order[links.reverse])


def _matched(links: Links, order: Int[Tensor, " e"]) -> Bool[Tensor, " e"]:
    """Return the matching that takes links in this order: in each pass all that come first at both ends."""
    last = len(links)
    taken = torch.zeros(last, dtype=torch.bool)
    left = torch.ones(last, dtype=torch.bool)
    while left.any():
        now = torch.where(left, order, last)
        first = now.new_full((links.shape[0],), last).scatter_reduce_(0, links.receivers, now, "amin")
        best = left & (now == first[links.receivers]) & (now == first[links.senders])
        taken = taken | best
        met = links.row_sums(taken) > 0
        left = left & ~met[links.receivers] & ~met[links.senders]
    return taken


@dataclass(frozen=True)
class RandomRegular(GraphSchedule):
    """A random graph in each round in which every agent has `degree` links, as in Epidemic Learning."""

    degree: int

    def check(self, links: Links) -> None:
        count = links.shape[0]
        if not 1 <= self.degree < count:
            raise UserError(f"{self.spec()} gives each of {count} agents {self.degree} links; use 1 to {count - 1}")
        if self.degree * count % 2:
            raise UserError(f"{self.spec()} with {count} agents: {self.degree}*{count} is odd; make one of them even")
        check_linked(self.spec(), links, torch.triu_indices(count, count, 1).T)

    def begin(self, links: Links, seed: int) -> GraphOfRound:
        return lambda round_number: RoundGraph(self._drawn(links, seed, round_number))

    def _drawn(self, links: Links, seed: int, round_number: int) -> Bool[Tensor, " e"]:
        count = links.shape[0]
        missing = count - 1 - self.degree  # dense graphs are drawn by the links that they lack
        state = int(torch.randint(2**31, (), generator=generator(seed, "regular", round_number)))
        graph = nx.random_regular_graph(min(self.degree, missing), count, seed=state)
        drawn = both_ways(links, torch.tensor(list(graph.edges()), dtype=torch.int64).reshape(-1, 2))
        return ~drawn if missing < self.degree else drawn

    def longest_gap(self, links: Links) -> int:
        missing = links.shape[0] - 1 - self.degree
        return steps_until_negligible(missing / (links.shape[0] - 1)) if missing else 0

    def spec(self) -> str:
        return f"regular:{self.degree}"


@dataclass(frozen=True)
class JoinedSchedules(GraphSchedule):
    """Several schedules at once: a link is in use if all of them use it."""

    parts: tuple[GraphSchedule, ...]

    def check(self, links: Links) -> None:
        for part in self.parts:
            part.check(links)

    def begin(self, links: Links, seed: int) -> GraphOfRound:
        of_parts = [part.begin(links, seed) for part in self.parts]

        def joined(round_number: int) -> RoundGraph:
            graphs = [graph(round_number) for graph in of_parts]
            up = [graph.up for graph in graphs if graph.up is not None]
            deaf = [graph.deaf for graph in graphs if graph.deaf is not None]
            return RoundGraph(
                torch.stack([graph.used for graph in graphs]).all(dim=0),
                torch.stack(up).all(dim=0) if up else None,
                torch.stack(deaf).any(dim=0) if deaf else None,
            )

        return joined

    def longest_gap(self, links: Links) -> int:
        return sum(part.longest_gap(links) for part in self.parts)

    def spec(self) -> str:
        return "+".join(part.spec() for part in self.parts)

    def copied_to(self, folder: Path) -> str:
        return "+".join(part.copied_to(folder) for part in self.parts)

    @property
    def has_absences(self) -> bool:
        return any(part.has_absences for part in self.parts)


def both_ways(links: Links, pairs: Int[Tensor, "m 2"]) -> Bool[Tensor, " e"]:
    """Return which links join these pairs, in both directions."""
    used = torch.zeros(len(links), dtype=torch.bool)
    for one, other in ((0, 1), (1, 0)):
        used[links.find(pairs[:, one], pairs[:, other])] = True
    return used


def check_linked(name: str, links: Links, pairs: Int[Tensor, "m 2"]) -> None:
    """Refuse a network without a link of the schedule."""
    missing = pairs[links.find(pairs[:, 0], pairs[:, 1]) < 0]
    if len(missing):
        one, other = missing[0].tolist()
        raise UserError(
            f"schedule {name} uses link {one}-{other}, which the network does not have; "
            f"use for example complete:{links.shape[0]}"
        )
