"""What every agent holds at a step: the messages that have arrived, and the weights that go with them."""

import torch

from gossamer.algorithms import Algorithm, Inbox, Late, Past, Weights
from gossamer.engine.checkpoint import part_of
from gossamer.engine.history import Drift, Ring
from gossamer.network import NOTHING, Arrivals, Network
from gossamer.shapes import Bool, Float, Int, Tensor


def _alias(*, plain: bool) -> dict[str, str]:
    """With plain SGD the direction is the gradient, so one vector is sent and kept for both."""
    return {"v": "g"} if plain else {}


def message_names(algorithm: Algorithm, *, plain: bool) -> tuple[str, ...]:
    """Return the vectors that a message carries."""
    alias = _alias(plain=plain)
    return tuple(dict.fromkeys(alias.get(name, name) for name in algorithm.message))


def planned_rings(algorithm: Algorithm, network: Network, *, plain: bool) -> tuple[tuple[str, ...], int]:
    """Return of which vectors a history is kept, and how deep: only where something can be late."""
    network = network.without_delay() if algorithm.waits else network
    largest = Arrivals(network, 0).largest_age
    depth = largest if algorithm.hears_late else network.reliable_delay
    if depth == 0:
        return (), 0
    return message_names(algorithm, plain=plain) if algorithm.hears_late else ("x",), depth + 1


class Mailbox:
    """Moves messages between stacked agents, late as the network says, and hands each step its inbox."""

    def __init__(
        self,
        algorithm: Algorithm,
        network: Network,
        x: Float[Tensor, "n d"],
        seed: int,
        *,
        plain: bool,
        history: str = "state",
    ) -> None:
        self.algorithm = algorithm
        self.network = network.without_delay() if algorithm.waits else network
        self.arrivals = Arrivals(self.network, seed)
        self._alias = _alias(plain=plain)
        self.message = message_names(algorithm, plain=plain)
        names, depth = planned_rings(algorithm, network, plain=plain)
        self.rings = {name: Ring(depth, x, history) for name in names}
        self.drift = Drift(self.rings["x"]) if self.rings and algorithm.past is Past.WINDOW else None
        self._like = x
        self._ages: Tensor | None = None
        self._weights: tuple[Weights, dict[int, Tensor]] | None = None

    def deliver(self, step: int, vectors: dict[str, Float[Tensor, "n d"]]) -> tuple[Inbox, Weights, Int[Tensor, "n n"]]:
        """Take what every agent sends at this step; return what every agent holds, its weights, and the ages."""
        for name, ring in self.rings.items():
            # A recording on a GPU overwrites its gradients at the next step; all else is made anew.
            ring.push(step, vectors[name], lasting=name == "x" or not vectors[name].is_cuda)
        ages = self.arrivals.advance(step)
        weights, late_weights = self._weights_for(ages)
        reliable_delay = self.network.reliable_delay
        fresh = self.rings["x"].at(step - reliable_delay) if reliable_delay else vectors["x"]
        return Inbox(fresh, self._late(step, late_weights)), weights, ages

    def sent(self, ages: Int[Tensor, "n n"]) -> Int[Tensor, " n"]:
        """Count what each agent sends: to all its neighbours, or where late messages are clipped to the others only."""
        served = self.network.links if self.algorithm.hears_late else self._reliable(ages)
        return served.sum(dim=0)

    def _reliable(self, ages: Int[Tensor, "n n"]) -> Bool[Tensor, "n n"]:
        return (ages >= 0) & (ages <= self.network.reliable_delay)

    def previous(self, step: int) -> Float[Tensor, "n d"] | None:
        """Return the states of the step before, where a history is kept."""
        return self.rings["x"].at(step - 1) if "x" in self.rings and self.algorithm.past is not Past.NONE else None

    def _late(self, step: int, late_weights: dict[int, Tensor]) -> tuple[Late, ...]:
        drifts = self.drift.at(step, late_weights) if self.drift is not None else {}
        keeps_past = self.algorithm.past is not Past.NONE
        groups = []
        for age, weights in late_weights.items():
            message = {name: self.rings[self._alias.get(name, name)].at(step - age) for name in self.algorithm.message}
            own_x = message["x"] if keeps_past else None  # of all agents, so of the receivers too
            groups.append(Late(age, weights, message, own_x, drifts.get(age)))
        return tuple(groups)

    def _weights_for(self, ages: Int[Tensor, "n n"]) -> tuple[Weights, dict[int, Tensor]]:
        """Return the weights for these ages; fixed delays ask for the same ones at every step."""
        if self._weights is None or self._ages is None or not torch.equal(ages, self._ages):
            self._ages, self._weights = ages.clone(), self._make_weights(ages)
        return self._weights

    def _make_weights(self, ages: Int[Tensor, "n n"]) -> tuple[Weights, dict[int, Tensor]]:
        network, reliable = self.network, self._reliable(ages)
        late = (ages > network.reliable_delay) & self.algorithm.hears_late
        w, clip = network.W, network.clip_matrix(reliable)
        own = w.diagonal()
        heard = w * (reliable | late)
        complete = bool(((ages != NOTHING) | ~network.links).all())
        mass = torch.ones_like(own) if complete else own + heard.sum(dim=1)
        clip_own = clip.diagonal()
        weights = Weights(
            own=self._place(own),
            fresh=self._place(w * reliable),
            mass=self._place(mass),
            clip_own=self._place(clip_own),
            clip_fresh=self._place(clip - torch.diag(clip_own)),
        )
        groups = {age: self._place(w * (late & (ages == age))) for age in torch.unique(ages[late]).tolist()}
        return weights, groups

    def _place(self, matrix: Tensor) -> Tensor:
        return matrix.to(device=self._like.device, dtype=self._like.dtype)

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything in flight: the rings, the arrivals and the sliding sums."""
        state = {f"ring.{name}.{k}": held for name, ring in self.rings.items() for k, held in ring.state_dict().items()}
        state |= {f"arrivals.{name}": value for name, value in self.arrivals.state_dict().items()}
        if self.drift is not None:
            state |= {f"drift.{name}": value for name, value in self.drift.state_dict().items()}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        for name, ring in self.rings.items():
            ring.load_state_dict(part_of(state, f"ring.{name}."))
        self.arrivals.load_state_dict(part_of(state, "arrivals."))
        if self.drift is not None:
            self.drift.load_state_dict(part_of(state, "drift."))
