"""Spies on the steps of a rule: every call of a run, and one agent of it alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch

import gossamer as gm
from gossamer.engine.simulation import Simulation
from gossamer.engine.trajectory import FunctionSource
from gossamer.network import LinkMatrix
from gossamer.state.local import LocalOptimizer
from worlds import World


@dataclass(frozen=True)
class Call:
    """What a rule was given at one step, and what it returned."""

    own: gm.Own
    inbox: gm.Inbox
    weights: gm.Weights
    noise: gm.Noise | None
    update: gm.Update


@dataclass
class Spy:
    """Stands where the rule stands in a simulation and keeps its calls."""

    algorithm: gm.Algorithm
    call: Call | None = None

    @property
    def draws(self) -> bool:
        return self.algorithm.draws

    def send(self, own: gm.Own) -> dict[str, torch.Tensor]:
        return self.algorithm.send(own)

    def step(self, own: gm.Own, inbox: gm.Inbox, weights: gm.Weights, noise: gm.Noise | None) -> gm.Update:
        before = [tensor.clone() for tensor in tensors_in((own, inbox, weights, noise))]
        update = self.algorithm.step(own, inbox, weights, noise)
        after = list(tensors_in((own, inbox, weights, noise)))
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True)), "an input was changed"
        self.call = Call(own, inbox, weights, noise, update)
        return update


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(tuple(value.values()))
    elif is_dataclass(value):
        yield from tensors_in(tuple(getattr(value, part.name) for part in fields(value)))


def simulation(algorithm: gm.Algorithm, world: World, **options: Any) -> Simulation:
    """A simulation that is about to take its first step."""
    local = {name: options.pop(name) for name in ("momentum", "nesterov", "weight_decay") if name in options}
    source = FunctionSource(world.smooth.gradient, world.smooth.loss)
    x0 = torch.from_numpy(world.smooth.x0)
    local = LocalOptimizer(**local)
    return Simulation(
        algorithm, world.network, source, x0, lr=lambda t: world.lr, local=local, seed=world.seed, **options
    )


def calls(algorithm: gm.Algorithm, world: World, **options: Any) -> Iterator[Call]:
    """Every call of the rule in one run; fails if the rule changes what it is given."""
    run = simulation(algorithm, world, **options)
    run.algorithm = spy = Spy(algorithm)
    for _ in range(world.num_steps):
        run.step()
        yield spy.call


@dataclass(frozen=True)
class OneAgent:
    """The evaluations of one agent of many."""

    everyone: Any
    i: int
    n: int

    def _row(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return getattr(self.everyone, name)(x.expand(self.n, -1))[self.i, None]

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return self._row("loss", x)

    def gradient(self, x: torch.Tensor) -> torch.Tensor:
        return self._row("gradient", x)

    def fresh_gradient(self, x: torch.Tensor) -> torch.Tensor:
        return self._row("fresh_gradient", x)


def row_of(call: Call, i: int) -> tuple[gm.Own, gm.Inbox, gm.Weights, gm.Noise | None]:
    """The same step as agent i alone sees it: one row of everything of its own, its neighbours' of what it heard."""
    n = len(call.own.x)
    senders = call.own.place.network.links[i].nonzero()[:, 0]

    def heard(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: tensor[senders] for name, tensor in tensors.items()}

    def between(matrix: LinkMatrix | None) -> LinkMatrix | None:
        return None if matrix is None else place.among(matrix)

    def row(tensor: torch.Tensor | None) -> torch.Tensor | None:
        return None if tensor is None else tensor[i : i + 1]

    def rows(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: tensor[i : i + 1] for name, tensor in tensors.items()}

    whole = call.own.place
    place = replace(whole, agents=row(whole.agents), share=row(whole.share), senders=senders)
    # What a rule keeps has a row for each agent, or for each link.
    of_links = slice(*whole.links.starts[i : i + 2].tolist())
    kept = {name: value[i : i + 1] if len(value) == n else value[of_links] for name, value in call.own.state.items()}
    own = replace(
        call.own,
        x=row(call.own.x),
        g=row(call.own.g),
        v=row(call.own.v),
        previous=row(call.own.previous),
        place=place,
        state=kept,
        sent=rows(call.own.sent),
        evaluate=OneAgent(call.own.evaluate, i, n),
    )
    late = tuple(
        replace(
            group,
            weights=between(group.weights),
            message=heard(group.message),
            own=rows(group.own),
            drift=row(group.drift),
            new=between(group.new),
        )
        for group in call.inbox.late
    )
    weights = call.weights.of(place)
    noise = None if call.noise is None else replace(call.noise, agent=row(call.noise.agent))
    inbox = replace(
        call.inbox,
        fresh=call.inbox.fresh[senders],
        late=late,
        message=heard(call.inbox.message),
        own=rows(call.inbox.own),
        new=between(call.inbox.new),
    )
    return own, inbox, weights, noise
