"""The network: links, mixing weights, delays."""

import copy
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from gossamer.errors import UserError, unknown_name
from gossamer.network.delay import Delay, Fixed, PerLink, check_delay
from gossamer.network.graph import check_connected
from gossamer.network.graph_schedule import GraphSchedule
from gossamer.network.link_matrix import LinkMatrix
from gossamer.network.links import Links
from gossamer.network.mixing import KINDS, check_assumption_2, mixing_weights, renormalised
from gossamer.network.spectrum import end_of_spectrum
from gossamer.network.trace import Trace
from gossamer.shapes import Bool, Float, Int, Tensor

Clusters = tuple[tuple[int, ...], ...]

# The links are given as a mask or as lists, and read as a mask, which is made on demand.
if TYPE_CHECKING:
    Given = Bool[Tensor, "n n"]
else:
    Given = Bool[Tensor, "n n"] | Links

CLIP_WEIGHTS = ("rebuilt", "renormalised")
MOST_LOSS = 0.99  # messages are kept for the longest likely run of losses, which has no bound at 1
STARTUPS = ("wait", "min", "full")
_MATRICES = ("W", "W_clip", "W_late")


@dataclass(frozen=True, eq=False, repr=False)
class Network:
    """Links, reliable clusters, delays and mixing weights of n agents; [i, k] is what i hears from k.

    `gm.network` makes one from a text or a graph. Matrices are made on demand: the engines use the lists of `pattern`.

    Attributes:
        links: who is linked with whom: symmetric, False on the diagonal.
        clusters: groups of agents whose links are never late; None if no clusters are known.
        delay: the delay of the message that arrives, for every link and step.
        loss: the probability that a message is lost.
        mixing: the weights of W, "metropolis" or "uniform".
        lazy: whether W is (I + W) / 2.
        clip_weights: weights of the clipping step: "rebuilt" on the current links, or the row of W "renormalised".
        reliable_delay: the delay in steps inside clusters.
        startup: what a late neighbour counts as until its first message arrives: "wait", "min" or "full".
        spec: the text that the network was made from.
        clusters_given: False if the clusters were discovered.
        spared_links: the links without delay and loss, a mask or one bool a link; None means those inside the clusters.
        schedule: which links are in use in which round; None means all, always.
        used: the links in use, of the network of one round (`using`); None means all.
        pattern: the links as lists.
    """

    links: Given
    clusters: Clusters | None
    delay: Delay
    loss: float = 0.0
    mixing: str = "metropolis"
    lazy: bool = False
    clip_weights: str = "rebuilt"
    reliable_delay: int = 0
    startup: str = "wait"
    spec: str = "custom"
    clusters_given: bool = True
    spared_links: Bool[Tensor, "..."] | None = None
    schedule: GraphSchedule | None = None
    used: Bool[Tensor, " e"] | None = None
    pattern: Links = field(init=False)

    def __post_init__(self) -> None:
        given: object = self.__dict__.pop("links")
        pattern = given if isinstance(given, Links) else _links_of_mask(given)
        object.__setattr__(self, "pattern", pattern)
        if self.spared_links is not None and self.spared_links.ndim == 2:
            object.__setattr__(self, "spared_links", pattern.at(self.spared_links))
        _check_links(pattern)
        if self.clusters is not None:
            _check_clusters(self.clusters, self.num_agents)
        if not 0.0 <= self.loss <= MOST_LOSS:
            raise UserError(f"loss must lie in [0, {MOST_LOSS}], got {self.loss}; use 0 for no lost messages")
        check_delay("reliable_delay", self.reliable_delay)
        _check_name("mixing", self.mixing, tuple(KINDS))
        _check_name("clip_weights", self.clip_weights, CLIP_WEIGHTS)
        _check_name("startup", self.startup, STARTUPS)
        self.delay.check_list(pattern)
        if self.schedule is not None:
            self.schedule.check(pattern)

    if not TYPE_CHECKING:  # for mypy it would have every attribute

        def __getattr__(self, name: str) -> Any:
            if name != "links":
                raise AttributeError(f"'Network' object has no attribute '{name}'")
            return self.pattern.mask

    @property
    def num_agents(self) -> int:
        """The number of agents n."""
        return self.pattern.shape[0]

    @property
    def num_links(self) -> int:
        """The number of undirected links."""
        return len(self.pattern) // 2

    @cached_property
    def degree(self) -> Int[Tensor, "n"]:
        """The number of neighbours of each agent, itself not counted."""
        return self.pattern.starts.diff() if self.used is None else self.pattern.row_sums(self.used)

    @cached_property
    def in_use(self) -> Bool[Tensor, " e"]:
        """The links in use: all, but for the network of one round."""
        return torch.ones(len(self.pattern), dtype=torch.bool) if self.used is None else self.used

    @cached_property
    def cluster_of(self) -> Int[Tensor, "n"]:
        """The cluster of each agent; without clusters every agent is a cluster of its own."""
        number = torch.arange(self.num_agents)
        for index, members in enumerate(self.clusters or ()):
            number[list(members)] = index
        return number

    # ---- one value a link, in the order of `pattern`

    @cached_property
    def inside(self) -> Bool[Tensor, " e"]:
        """The links whose ends share a cluster."""
        return self.cluster_of[self.pattern.receivers] == self.cluster_of[self.pattern.senders]

    @cached_property
    def spared_values(self) -> Bool[Tensor, " e"]:
        """The links without delay and loss: those inside the given clusters."""
        return self.inside if self.spared_links is None else self.spared_links

    @cached_property
    def late_values(self) -> Bool[Tensor, " e"]:
        """The links that can be late: those that the delay model covers, except inside clusters."""
        late = self.delay.late_list(self.pattern) & self.in_use
        return late if self.delay.covers_every_link else late & ~self.spared_values

    @cached_property
    def mixing_weights(self) -> tuple[Float[Tensor, " n"], LinkMatrix]:
        """The diagonal of W, and its weights of the links."""
        return mixing_weights(self.pattern, self.in_use, self.mixing, self.lazy)

    @property
    def own_weights(self) -> Float[Tensor, " n"]:
        """The diagonal of W: each agent's weight of itself."""
        return self.mixing_weights[0]

    @property
    def link_weights(self) -> LinkMatrix:
        """The weights of the links in W."""
        return self.mixing_weights[1]

    def clipping_weights(self, current: Bool[Tensor, " e"]) -> tuple[Float[Tensor, " n"], LinkMatrix]:
        """Return the diagonal and the link weights of the clipping step when exactly these links are current.

        "rebuilt" makes a new matrix on the links that are current in both directions, so it stays doubly stochastic.
        "renormalised" scales the row of W over the neighbours that are current.
        """
        if self.clip_weights == "renormalised":
            return renormalised(*self.mixing_weights, current)
        return mixing_weights(self.pattern, current & current[self.pattern.reverse], self.mixing, self.lazy)

    @cached_property
    def late_radius(self) -> float:
        """The spectral radius of W', or of its symmetric part where links are late in one direction only.

        Where no delay is modelled, as on real links, any link outside the clusters can be late.
        """
        everywhere = torch.ones(len(self.pattern), dtype=torch.bool)
        candidates = (self.late_values, ~self.spared_values, everywhere)
        late = self.link_weights.on(next((values for values in candidates if values.any()), everywhere))
        return end_of_spectrum((late + late.T) * 0.5)  # the largest of a matrix without negative numbers

    # ---- dense matrices, for reading

    @cached_property
    def same_cluster(self) -> Bool[Tensor, "n n"]:
        """Which pairs share a cluster: False on the diagonal, and everywhere without clusters."""
        same = self.cluster_of[:, None] == self.cluster_of[None, :]
        return same & ~torch.eye(self.num_agents, dtype=torch.bool)

    @cached_property
    def spared(self) -> Bool[Tensor, "n n"]:
        """The links without delay and loss: those inside the given clusters."""
        return self.pattern.matrix(self.spared_values)

    @cached_property
    def late_links(self) -> Bool[Tensor, "n n"]:
        """The links that can be late: those that the delay model covers, except inside clusters."""
        return self.pattern.matrix(self.late_values)

    @cached_property
    def W(self) -> Float[Tensor, "n n"]:
        """The mixing matrix on all links."""
        return self.link_weights.with_diagonal(self.own_weights)

    @cached_property
    def W_clip(self) -> Float[Tensor, "n n"]:
        """The paper's W tilde: mixing inside the clusters only; the identity without clusters."""
        return self._clip_matrix(self.inside)

    @cached_property
    def W_late(self) -> Float[Tensor, "n n"]:
        """The paper's W': the weights of W on the links that can be late. Row i sums to its unreliable mass b_i."""
        return self.W * self.late_links

    def clip_matrix(self, reliable: Bool[Tensor, "n n"]) -> Float[Tensor, "n n"]:
        """Return the matrix of the clipping step when exactly these directed links are current."""
        return self._clip_matrix(self.pattern.at(reliable))

    def _clip_matrix(self, current: Bool[Tensor, " e"]) -> Float[Tensor, "n n"]:
        own, weights = self.clipping_weights(current)
        return weights.with_diagonal(own)

    # ---- other networks like this one

    def changed(self, **changes: Any) -> "Network":
        """Return the network with other values of some attributes; the lists of links are kept."""
        return replace(self, **{"links": self.pattern, **changes})

    def using(self, used: Bool[Tensor, " e"]) -> "Network":
        """Return the network of a round in which only these links, which go both ways, are in use."""
        made = copy.copy(self)  # without the checks: the links in use need not be connected
        for name in ("in_use", "degree", "late_values", "mixing_weights", "late_radius", "late_links", *_MATRICES):
            made.__dict__.pop(name, None)
        object.__setattr__(made, "used", used)
        return made

    def with_clusters(self, clusters: Clusters) -> "Network":
        """Return the same network with discovered clusters; its delays stay the same."""
        return self.changed(clusters=clusters, clusters_given=False, spared_links=self.spared_values)

    def without_delay(self) -> "Network":
        """Return the network of a synchronous algorithm: the same links without delay and loss."""
        return self.changed(delay=Fixed(0), loss=0.0, reliable_delay=0)

    def to_json(self) -> dict[str, Any]:
        """Return the network in the file format that `graph.read` takes."""
        document: dict[str, Any] = {"agents": self.num_agents, "links": _pairs(self.pattern)}
        if self.clusters is not None and self.clusters_given:  # a run discovers the others again
            document["clusters"] = [list(members) for members in self.clusters]
        if isinstance(self.delay, PerLink):
            document["delay"] = self.delay.matrix.tolist()
        elif not isinstance(self.delay, Trace):  # a trace stays in its own file
            document["delay"] = self.delay.as_json()
        return document

    def describe(self) -> dict[str, Any]:
        """Return a description of the network as plain values."""
        whole, clip = check_assumption_2(self.W), check_assumption_2(self.W_clip)
        late = check_assumption_2(self.W_late)
        return {
            "agents": self.num_agents,
            "links": self.num_links,
            "clusters": None if self.clusters is None else [list(members) for members in self.clusters],
            "delay": self.delay.as_json(),
            "loss": self.loss,
            "mixing": self.mixing,
            "lazy": self.lazy,
            **({} if self.schedule is None else {"schedule": self.schedule.spec()}),
            "e2": whole.e2,
            "e2_clip": clip.e2,
            "spectral_gap": whole.spectral_gap,
            "unreliable_mass": self.W_late.sum(dim=1).tolist(),
            "assumptions": {"W": whole.as_dict(), "W_clip": clip.as_dict(), "W_late": late.as_dict()},
        }

    def _repr_html_(self) -> str:
        from gossamer.report.network_picture import to_html  # report imports this module

        return to_html(self)

    def __repr__(self) -> str:
        clusters = "none" if self.clusters is None else "+".join(str(len(members)) for members in self.clusters)
        return (
            f"Network({self.spec}: {self.num_agents} agents, {self.num_links} links, clusters {clusters}, "
            f"delay {self.delay.spec()}, loss {self.loss:g}, {'lazy ' if self.lazy else ''}{self.mixing}"
            + (")" if self.schedule is None else f", schedule {self.schedule.spec()})")
        )


def _check_name(kind: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise unknown_name(kind, name, known)


def _pairs(links: Links) -> list[list[int]]:
    """Return each link once, from the smaller number to the larger one."""
    once = links.part(links.receivers < links.senders)
    found: list[list[int]] = torch.stack([once.receivers, once.senders], dim=1).tolist()
    return found


def _links_of_mask(links: object) -> Links:
    assert isinstance(links, Tensor)
    if links.ndim != 2 or links.shape[0] != links.shape[1] or not len(links) or links.dtype != torch.bool:
        raise UserError(
            f"links are {links.dtype} of shape {tuple(links.shape)}; "
            "give a square bool matrix with a row for each agent"
        )
    return Links.from_mask(links)


def _check_links(links: Links) -> None:
    loops = links.receivers == links.senders
    if loops.any():
        agent = int(links.receivers[loops][0])
        raise UserError(f"agent {agent} is linked with itself; clear the diagonal of the links")
    alone = links.reverse < 0
    if alone.any():
        i, k = int(links.receivers[alone][0]), int(links.senders[alone][0])
        raise UserError(f"link {i}-{k} goes one way only; links are undirected, so set both [{i},{k}] and [{k},{i}]")
    check_connected(links)


def _check_clusters(clusters: Clusters, num_agents: int) -> None:
    if not clusters or not all(clusters):
        raise UserError(f"clusters {list(clusters)} hold an empty one; leave it out")
    members = [agent for cluster in clusters for agent in cluster]
    outside = [agent for agent in members if not 0 <= agent < num_agents]
    if outside:
        raise UserError(f"clusters name agent {outside[0]}; agents are numbered 0 to {num_agents - 1}")
    twice = [agent for agent, count in Counter(members).items() if count > 1]
    if twice:
        raise UserError(f"agent {min(twice)} is in more than one cluster; name it in exactly one")
    missing = sorted(set(range(num_agents)) - set(members))
    if missing:
        raise UserError(f"agent {missing[0]} is in no cluster; name each of the {num_agents} agents in one")
