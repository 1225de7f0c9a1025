"""What a rule gets to see at an update: of all agents at once where they move in step, else of one agent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from operator import and_

import torch

from gossamer.algorithms import Algorithm, Inbox, Late, Past, Place, Weights
from gossamer.algorithms.message_parts import aliases
from gossamer.algorithms.steps import weigh
from gossamer.engine.timed.lone_weights import LoneWeights
from gossamer.engine.timed.snapshots import PREFIX, Block, OwnPast, Snapshot
from gossamer.engine.timed.timetable import Heard
from gossamer.engine.timed.weights_of_rounds import WeightsOfRounds
from gossamer.network import LinkMatrix, Network, Rounds
from gossamer.shapes import Float, Tensor

MOST_CACHED = 2**15  # small tensors of each kind; larger networks need more of them

Flags = tuple[bool, ...]  # one a neighbour


@dataclass(frozen=True)
class AtUpdate:
    """What a rule gets besides its own values."""

    inbox: Inbox
    weights: Weights


def drift(now: Snapshot | Block, then: Snapshot | Block, age: int) -> Float[Tensor, "a d"]:
    """Return the sum over r < age of x(t - age + r) - x(t - age), from prefix sums of the states."""
    (newest, _), (older, x) = (_of(each) for each in (now, then))
    return (newest - older).sub_(x, alpha=age).to(x.dtype)


def _of(each: Snapshot | Block) -> tuple[Tensor, Tensor]:
    if isinstance(each, Block):
        return each.parts[PREFIX], each.parts["x"]
    return each.part(PREFIX), each.part("x")


class Inboxes:
    """Makes inboxes from what agents hold."""

    def __init__(
        self,
        algorithm: Algorithm,
        network: Network,
        places: Sequence[Place],
        like: Tensor,
        tolerance: int,
        plain: bool,
        rounds: Rounds | None = None,
    ) -> None:
        self.algorithm, self.network, self.places = algorithm, network, places
        self._tolerance, self._like = tolerance, like
        self._alias = aliases(plain=plain)
        self._pattern = network.pattern.to(like.device)
        self._rounds = rounds
        self.lone = LoneWeights(network, places, like.dtype)
        if rounds is not None:
            self.lone = WeightsOfRounds(network, places, like.dtype, rounds)
        self._mine = [slice(s, e) for s, e in pairwise(network.pattern.starts.tolist())]
        # Small tensors take long to make, and an agent needs the same few again and again.
        self._mask = lru_cache(MOST_CACHED)(self._make_mask)
        self._weights = lru_cache(MOST_CACHED)(self._make_weights)
        self._gathering: dict[str, Tensor] = {}  # by part: the rows of messages that one agent holds
        self._all: tuple[int, Tensor] | None = None  # iteration and ages of an update that `lone` was not told of
        self._seen: tuple[Network, Tensor, Tensor] | None = None
        self._held: tuple[Weights, dict[int, tuple[LinkMatrix, LinkMatrix]], LinkMatrix] | None = None

    def _name(self, name: str) -> str:
        return self._alias.get(name, name)

    def network_at(self, iteration: int) -> Network:
        """Return the network with the weights of an iteration."""
        return self.network if self._rounds is None else self._rounds.network(iteration)

    def note_current(self, agent: int, iteration: int, heard: Heard) -> None:
        """Note which links of an agent are current; before the inboxes of those who update at the same time."""
        self._tell_of_all()
        self.lone.note(agent, iteration, [0 <= age <= self._tolerance for age in heard.ages])

    def _tell_of_all(self) -> None:
        if self._all is not None:
            self.lone.note_all(self._all[0], self._is_reliable(self._all[1]).numpy())
            self._all = None

    def current_links(self) -> Tensor:
        """Return which links were current at their receivers' newest updates."""
        self._tell_of_all()
        return torch.from_numpy(self.lone.current.copy())

    # ---- one agent

    def of_one(
        self, agent: int, iteration: int, turn: Snapshot, own_parts: Mapping[str, Tensor], heard: Heard, past: OwnPast
    ) -> AtUpdate:
        """Return the inbox of one agent. All its groups are rows of the same tensors, told apart by their weights."""
        names, ages, new = self.algorithm.message, heard.ages, heard.new
        reliable = tuple(0 <= age <= self._tolerance for age in ages)
        late = tuple(age > self._tolerance and self.algorithm.hears_late for age in ages)
        message = {name: self._gathered(name, heard, turn) for name in names}
        keeps = self.algorithm.past is not Past.NONE
        equal = heard.sender_steps == ages
        steps = None if equal else self._matrix(agent, torch.tensor(heard.sender_steps).to(self._like))
        groups = []
        for age in sorted({age for age, is_late in zip(ages, late, strict=True) if is_late}):
            member = tuple(is_late and other == age for other, is_late in zip(ages, late, strict=True))
            then = past.at(iteration - age) if keeps else None
            groups.append(
                Late(
                    age,
                    self._late_weights(agent, member, iteration),
                    message,
                    {} if then is None else {name: then.part(self._name(name)) for name in (*names, "x")},
                    drift(turn, then, age) if then is not None and self.algorithm.past is Past.WINDOW else None,
                    self._mask(agent, tuple(map(and_, member, new))),
                    steps,
                )
            )
        x = own_parts["x"]
        fresh = message["x"] if "x" in message else x[:1, :1].expand(len(ages), x.shape[1])
        own = {name: own_parts[self._name(name)] for name in names}
        inbox = Inbox(fresh, tuple(groups), message, own, self._mask(agent, tuple(map(and_, reliable, new))))
        return AtUpdate(inbox, self.lone.of(agent, iteration, reliable, late))

    def _matrix(self, agent: int, values: Tensor) -> LinkMatrix:
        return LinkMatrix(self.places[agent].links, values.to(self._like.device))

    def _make_mask(self, agent: int, flags: Flags) -> LinkMatrix:
        return self._matrix(agent, torch.tensor(flags, dtype=torch.bool))

    def _late_weights(self, agent: int, member: Flags, iteration: int) -> LinkMatrix:
        return self._weights(agent, member, None if self._rounds is None else iteration)

    def _make_weights(self, agent: int, member: Flags, iteration: int | None) -> LinkMatrix:
        network = self.network if iteration is None else self.network_at(iteration)
        w = network.link_weights.values[self._mine[agent]]
        return self._matrix(agent, (w * torch.tensor(member)).to(self._like))

    def _gathered(self, name: str, heard: Heard, turn: Snapshot) -> Float[Tensor, "n _"]:
        """Return the neighbours' rows, zeros where nothing is held, in memory that the next agent uses again."""
        part = self._name(name)
        own = turn.part(part)
        nothing = torch.zeros_like(own) if None in heard.messages else own
        rows = [nothing if message is None else message.content.part(part) for message in heard.messages]
        place = self._gathering.get(name)
        if place is None or len(place) < len(rows):
            place = self._gathering[name] = own.new_empty((len(rows), own.shape[1]))
        return torch.cat(rows, out=place[: len(rows)]) if rows else own[:0]

    # ---- all agents

    def blocks_by_age(self, heard: Sequence[Heard]) -> dict[int, Block] | None:
        """Return the block in which all messages of an age are, by age; None if they are not together.

        All current messages have to be of one block, whatever their age.
        """
        found: dict[int, Block] = {}
        for each in heard:
            for age, message in zip(each.ages, each.messages, strict=True):
                if message is None:
                    continue
                its = message.content.block
                if not its.is_whole or found.setdefault(age, its) is not its:
                    return None
        current = [its for age, its in found.items() if age <= self._tolerance]
        return found if all(its is current[0] for its in current) else None

    def of_all(
        self,
        iteration: int,
        block: Block,
        blocks: Mapping[int, Block],
        heard: Sequence[Heard],
        defer: Callable[[Tensor], Tensor],
    ) -> AtUpdate:
        """Return the inbox of all agents, in the form of the simulator in steps.

        `defer` makes the stand-ins of rows whose arithmetic is done later (fused/).
        """
        ages = torch.tensor([age for each in heard for age in each.ages], dtype=torch.int64)
        new = torch.tensor([flag for each in heard for flag in each.new], dtype=torch.bool)
        weights, groups, new_fresh = self._held_at(self.network_at(iteration), ages, new)
        if self._rounds is not None:
            self._tell_of_all()
        self._all = iteration, ages
        fresh = next((its for age, its in blocks.items() if age <= self._tolerance), block)
        message, steps = self._parts(fresh, defer), self._steps_of_all(heard)
        keeps, window = self.algorithm.past is not Past.NONE, self.algorithm.past is Past.WINDOW
        late = []
        for age, (of_age, new_of_age) in groups.items():
            then = self._parts(blocks[age], defer)
            own = {"x": defer(blocks[age].parts["x"]), **then} if keeps else {}
            moved = defer(drift(block, blocks[age], age)) if window else None
            late.append(Late(age, of_age, then, own, moved, new_of_age, steps))
        inbox = Inbox(defer(fresh.parts["x"]), tuple(late), message, self._parts(block, defer), new_fresh)
        return AtUpdate(inbox, weights)

    def _steps_of_all(self, heard: Sequence[Heard]) -> LinkMatrix | None:
        """Return the senders' steps; None if they are the ages."""
        if all(each.sender_steps == each.ages for each in heard):
            return None
        steps = torch.tensor([steps for each in heard for steps in each.sender_steps])
        return LinkMatrix(self._pattern, steps.to(self._like))

    def _is_reliable(self, ages: Tensor) -> Tensor:
        return (ages >= 0) & (ages <= self._tolerance)

    def _parts(self, block: Block, defer: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        return {name: defer(block.parts[self._name(name)]) for name in self.algorithm.message}

    def _held_at(
        self, network: Network, ages: Tensor, new: Tensor
    ) -> tuple[Weights, dict[int, tuple[LinkMatrix, LinkMatrix]], LinkMatrix]:
        """Return the weights for these ages; with steady links they are the same at every step."""
        seen = self._seen if self._seen is not None and self._seen[0] is network else None
        if self._held is not None and seen is not None and all(map(torch.equal, (ages, new), seen[1:])):
            return self._held
        reliable = self._is_reliable(ages)
        late = (ages > self._tolerance) & self.algorithm.hears_late
        groups = {}
        for age in torch.unique(ages[late]).tolist():
            of_age = late & (ages == age)
            weights = network.link_weights.on(of_age).to(self._like)
            groups[age] = weights, LinkMatrix(self._pattern, (new & of_age).to(self._like.device))
        self._seen = network, ages, new
        fresh = LinkMatrix(self._pattern, (new & reliable).to(self._like.device))
        self._held = weigh(network, reliable, late).to(self._like), groups, fresh
        return self._held
