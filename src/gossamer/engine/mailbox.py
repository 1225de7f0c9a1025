"""The messages that every agent holds at a step, and their mixing weights."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from gossamer.algorithms import Algorithm, Inbox, Late, Past, Weights
from gossamer.algorithms.message_parts import aliases, part_bytes, part_dtype, part_size, parts_sent
from gossamer.algorithms.steps import weigh
from gossamer.fused import passing
from gossamer.network import NOTHING, Arrivals, LinkMatrix, Network
from gossamer.shapes import Bool, Float, Int, Tensor
from gossamer.state.checkpoint import part_of
from gossamer.state.history import Drift, PrefixDrift, Ring, SlidingDrift


def _arrivals(algorithm: Algorithm, network: Network, seed: int) -> Arrivals:
    return Arrivals(
        network,
        seed,
        forget=not algorithm.totals,
        period=algorithm.period,
        period_inside=algorithm.period_inside,
    )


def planned_rings(algorithm: Algorithm, network: Network, *, plain: bool) -> tuple[tuple[str, ...], int]:
    """Return the message parts that need a history, and its depth. Without late messages there is none."""
    network = network.without_delay() if algorithm.waits else network
    depth = _arrivals(algorithm, network, 0).largest_age if algorithm.hears_late else network.reliable_delay
    if depth == 0:
        return (), 0
    return parts_sent(algorithm.message, plain=plain) if algorithm.hears_late else ("x",), depth + 1


@dataclass(frozen=True)
class _Held:
    """The weights of the held messages. They are reused as long as the ages do not change."""

    weights: Weights
    late: dict[int, tuple[LinkMatrix, LinkMatrix]]  # by age: weights, and which messages are new
    new: LinkMatrix  # which messages of reliable neighbours are new


class Mailbox:
    """Delivers messages between stacked agents with the delays of the network, and builds the inbox of each step."""

    def __init__(
        self,
        algorithm: Algorithm,
        network: Network,
        x: Float[Tensor, "n d"],
        seed: int,
        *,
        plain: bool,
        history: str = "state",
        defer: Callable[[Tensor], Tensor] = lambda rows: rows,
    ) -> None:
        """`defer` makes the stand-ins of rows whose arithmetic is done later (fused/)."""
        self.algorithm, self._defer = algorithm, defer
        self.network = network.without_delay() if algorithm.waits else network
        self.arrivals = _arrivals(algorithm, self.network, seed)
        self.rounds = self.arrivals.rounds
        self._alias = aliases(plain=plain)
        names, depth = planned_rings(algorithm, network, plain=plain)
        self.rings = {name: Ring(depth, self._like(name, x), self._where(name, history)) for name in names}
        # Bytes of a message across clusters, and inside a cluster.
        self._bytes = [
            sum(part_bytes(algorithm, name, x.shape[1], x.element_size()) for name in parts_sent(of, plain=plain))
            for of in (algorithm.message_across, algorithm.message)
        ]
        self.drift = self._make_drift() if self.rings and algorithm.past is Past.WINDOW else None
        self._x = x
        self._links = network.pattern
        self._ages = torch.full((len(self._links),), NOTHING)  # at the previous step
        # The network, the ages and the new-message mask that `_held` was made for.
        self._seen: tuple[Network, Tensor, Tensor] | None = None
        self._held: _Held | None = None

    def _make_drift(self) -> Drift:
        """With few ages, which stay, sums that slide; else prefix sums, whose cost is that of the ages in use."""
        steady = self.network.loss == 0 and (self.rounds is None or self.rounds.longest_gap == 0)
        few = steady and self.network.delay.num_values <= SlidingDrift.KEPT
        return (SlidingDrift if few else PrefixDrift)(self.rings["x"], self._defer)

    def _like(self, name: str, x: Float[Tensor, "n d"]) -> Float[Tensor, "n _"]:
        part = x[:, : part_size(self.algorithm, name, x.shape[1])]
        return part.to(part_dtype(self.algorithm, name, x.dtype))

    def _where(self, name: str, history: str) -> str:
        """Return how to store a part. Totals and numbers are never rounded."""
        exact = name in self.algorithm.totals | self.algorithm.numbers
        return "state" if history == "bf16" and exact else history

    def deliver(self, step: int, vectors: dict[str, Float[Tensor, "n d"]]) -> tuple[Inbox, Weights, Int[Tensor, " e"]]:
        """Take what every agent sends at this step. Return what every agent holds, the weights and the links' ages."""
        for name, ring in self.rings.items():
            # A CUDA graph overwrites its gradients at the next step. All other tensors are new at each step.
            ring.push(step, vectors[name], lasting=name == "x" or not vectors[name].is_cuda)
        ages = self.arrivals.advance_list(step)
        held = self._held_at(step, ages)
        message = {name: self._defer(self._fresh(step, name, vectors)) for name in self.algorithm.message}
        fresh = self._defer(self._fresh(step, "x", vectors))
        return Inbox(fresh, self._late(step, held), message, message, held.new), held.weights, ages

    def _fresh(self, step: int, name: str, vectors: dict[str, Float[Tensor, "n _"]]) -> Float[Tensor, "n _"]:
        delay, name = self.network.reliable_delay, self._alias.get(name, name)
        return self.rings[name].at(step - delay) if delay and name in self.rings else vectors[name]

    def bytes_sent(self, step: int, ages: Int[Tensor, " e"], extra: int) -> Int[Tensor, " n"]:
        """Return the bytes that each agent sends over links in use: to all neighbours, or to reliable ones if it clips.

        `extra` is the number of further bytes in every message.
        """
        algorithm, spared = self.algorithm, self.network.spared_values
        periods = (algorithm.period, algorithm.period_inside)
        across, inside = (
            size + extra if step % period == 0 else 0 for size, period in zip(self._bytes, periods, strict=True)
        )
        of_link = torch.where(spared, inside, across)
        if self.rounds is not None:
            of_link = of_link * self.rounds.used(step)
        return self._links.column_sums(of_link if algorithm.hears_late else of_link * self._reliable(ages))

    def _reliable(self, ages: Int[Tensor, " e"]) -> Bool[Tensor, " e"]:
        return (ages >= 0) & (ages <= self.network.reliable_delay)

    def kept(self) -> list[Tensor]:
        """Return the sums over the past that later steps need."""
        return [] if self.drift is None else self.drift.kept()

    def settle(self, real: Callable[[Tensor], Tensor]) -> None:
        """Replace stand-ins that were kept by their values."""
        if self.drift is not None:
            self.drift.settle(real)

    def previous(self, step: int) -> Float[Tensor, "n d"] | None:
        """Return the states of the previous step, or None without a history."""
        if "x" not in self.rings or self.algorithm.past is Past.NONE:
            return None
        return self._defer(self.rings["x"].at(step - 1))

    def _late(self, step: int, held: "_Held") -> tuple[Late, ...]:
        drifts = self.drift.at(step, held.late) if self.drift is not None else {}
        keeps_past = self.algorithm.past is not Past.NONE
        groups = []
        for age, (weights, new) in held.late.items():
            held_parts = {
                name: self.rings[self._alias.get(name, name)].at(step - age) for name in self.algorithm.message
            }
            message = {name: self._defer(part) for name, part in held_parts.items()}
            own = message if keeps_past else {}  # the rows of all agents, so those of the receivers too
            drift = passing(drifts[age]) if age in drifts else None
            groups.append(Late(age, weights, message, own, drift, new))
        return tuple(groups)

    def network_at(self, step: int) -> Network:
        """Return the network with the weights of this step."""
        return self.network if self.rounds is None else self.rounds.network(step)

    def _held_at(self, step: int, ages: Int[Tensor, " e"]) -> "_Held":
        """Return the weights for these ages. With fixed delays they are the same at every step."""
        # Without a newer message an age grows by one per step.
        new = (ages != NOTHING) & ((self._ages == NOTHING) | (ages <= self._ages))
        self._ages = ages if self.rounds is None else self._seen_ages(step, ages)
        network = self.network_at(step)
        seen = self._seen
        if (
            self._held is None
            or seen is None
            or seen[0] is not network
            or not all(map(torch.equal, (ages, new), seen[1:]))
        ):
            self._seen, self._held = (network, ages.clone(), new), self._make_held(network, ages, new)
        return self._held

    def _seen_ages(self, step: int, ages: Int[Tensor, " e"]) -> Int[Tensor, " e"]:
        """Return the ages of the newest messages that the rule has seen: it sees none of a link that is not in use."""
        assert self.rounds is not None
        older = torch.where(self._ages == NOTHING, NOTHING, self._ages + 1)
        return torch.where(self.rounds.used(step) & (ages != NOTHING), ages, older)

    def _make_held(self, network: Network, ages: Int[Tensor, " e"], new: Bool[Tensor, " e"]) -> "_Held":
        reliable = self._reliable(ages)
        late = (ages > network.reliable_delay) & self.algorithm.hears_late
        weights = weigh(network, reliable, late).to(self._x)
        groups = {}
        for age in torch.unique(ages[late]).tolist():
            of_age = late & (ages == age)
            groups[age] = network.link_weights.on(of_age).to(self._x), self._on_device(new & of_age)
        return _Held(weights, groups, self._on_device(new & reliable))

    def _on_device(self, flags: Bool[Tensor, " e"]) -> LinkMatrix:
        return LinkMatrix(self._links, flags).to(self._x.device)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the messages in flight: the rings, the arrivals and the sliding sums."""
        state = {f"ring.{name}.{k}": held for name, ring in self.rings.items() for k, held in ring.state_dict().items()}
        state |= {f"arrivals.{name}": value for name, value in self.arrivals.state_dict().items()}
        state["ages"] = self._ages
        if self.drift is not None:
            state |= {f"drift.{name}": value for name, value in self.drift.state_dict().items()}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        for name, ring in self.rings.items():
            ring.load_state_dict(part_of(state, f"ring.{name}."))
        self.arrivals.load_state_dict(part_of(state, "arrivals."))
        self._ages = torch.empty_like(self._ages).copy_(self._links.listed(state["ages"], self._ages))
        if self.drift is not None:
            self.drift.load_state_dict(part_of(state, "drift."))
