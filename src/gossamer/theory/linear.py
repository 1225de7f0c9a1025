"""The update of a rule on a quadratic, as a linear map from the recent past to the next step.

On losses f_i(x) = h x^2 / 2 a rule without chance is linear near the optimum, and with fixed delays it is the same at
every step: y(t + 1) = sum over ages s of A_s y(t - s), where y holds x and whatever vectors the rule and the local
optimiser keep. The matrices are read off the rule itself: the simulator is led through a past in which each number is 1
in a column of its own, and its next step is written down. So no formula is copied here, and a rule of your own is
analysed as any other.
"""

from dataclasses import dataclass

import torch

from gossamer.algorithms import Algorithm
from gossamer.engine.simulation import Simulation
from gossamer.engine.trajectory import FunctionSource
from gossamer.errors import UserError
from gossamer.network import Arrivals, Fixed, Network, PerLink
from gossamer.seeding import generator
from gossamer.shapes import Float, Tensor
from gossamer.state.local import LocalOptimizer
from gossamer.theory.estimate import theta_range

SMALL = 1e-5  # of a gradient, tau-fold: g * g is then 1e-10 of g, so that curvature estimates vanish
TOLERANCE = 1e-6
TRIALS, COLUMNS = 6, 3
PLAIN = LocalOptimizer()

Past = list[dict[str, Float[Tensor, "n columns"]]]  # the kept vectors at each step, oldest first


@dataclass(frozen=True)
class LinearUpdate:
    """y(t + 1) = sum of matrices[s] y(t - s); y lists x of all agents first, then what else is kept."""

    matrices: dict[int, Float[Tensor, "m m"]]  # by age
    num_agents: int
    starts: Float[Tensor, "k n"] | None = None  # for rules that keep vectors: pasts, stacked, that runs begin with

    @property
    def size(self) -> int:
        """The numbers that one step is made of."""
        return len(self.matrices[0])

    @property
    def depth(self) -> int:
        """The oldest age."""
        return max(self.matrices)


def linearise(
    algorithm: Algorithm,
    network: Network,
    lr: float,
    curvature: float,
    local: LocalOptimizer = PLAIN,
    *,
    check: bool = True,
) -> LinearUpdate:
    """Return a rule's update on f(x) = curvature x^2 / 2; refuse rules that have no fixed linear one.

    `check` makes sure of that; whoever has done so at one learning rate need not do it at the next.
    """
    if not curvature > 0:
        raise UserError(f"curvature must lie above 0, got {curvature}; use the largest one of your loss, such as 10")
    probe = _Probe(algorithm, network, lr, curvature, local)
    update = probe.read_off()
    if check:
        probe.check(update)
    return update


class _Probe:
    """Leads a simulation through a given past, and looks at its next step."""

    def __init__(
        self, algorithm: Algorithm, network: Network, lr: float, curvature: float, local: LocalOptimizer
    ) -> None:
        self.algorithm, self.network, self.lr, self.curvature, self.local = algorithm, network, lr, curvature, local
        algorithm.check(network)
        if algorithm.draws:
            raise _refused(algorithm, "draws at random at every step; look at the values it draws from, one by one")
        if algorithm.period > 1 or algorithm.period_inside > 1:
            raise _refused(algorithm, "sends in rounds; set its period to 1")
        if algorithm.totals:
            raise _refused(algorithm, "sends running totals, which need not settle where the states do")
        if getattr(algorithm, "consensus_steps", 0):
            raise _refused(algorithm, "begins with another rule; set consensus_steps to 0")
        theta = theta_range(algorithm)
        if theta is not None and theta[0] != theta[1]:
            low, high = theta
            raise _refused(algorithm, f"has theta between {low:g} and {high:g}; look at --theta {low:g} and {high:g}")
        if not isinstance(network.delay, Fixed | PerLink) or network.loss:
            raise UserError(
                f"delay {network.delay.spec()} with loss {network.loss:g} differs from message to message, so there is "
                f"no fixed update; use fixed delays, such as --delay {network.delay.largest}"
            )
        self.ages = self._ages()
        self.names = self._names()
        self.small = SMALL / max(1.0, curvature * max(1, self.depth))

    def _ages(self) -> list[int]:
        """Return the ages of messages once all have arrived, with 0."""
        if self.algorithm.waits:
            return [0]
        arrivals = Arrivals(self.network, 0)
        for step in range(arrivals.largest_age + 1):
            ages = arrivals.advance(step)
        held = ages[self.network.links]
        return sorted({0, *held[held >= 0].tolist()})

    @property
    def depth(self) -> int:
        return self.ages[-1]

    def _simulation(self, columns: int) -> Simulation:
        source = FunctionSource(lambda x, _: self.curvature * x, None)
        start = torch.zeros(self.network.num_agents, columns, dtype=torch.float64)
        return Simulation(self.algorithm, self.network, source, start, lr=lambda _: self.lr, local=self.local)

    def _names(self) -> tuple[str, ...]:
        """Return what is kept between steps; only vectors like x can be part of a linear map."""
        simulation = self._simulation(self.network.num_agents + 2)  # unlike any other number of its shapes
        kept = {name: tuple(value.shape) for name, value in simulation.state.items()}
        odd = [name for name, shape in kept.items() if shape != tuple(simulation.x.shape)]
        if odd:
            raise _refused(self.algorithm, f"keeps '{odd[0]}', which is no vector like x")
        return ("x", *kept, *(("memory",) if self.local.momentum else ()))

    def follow(self, past: Past, settled: int) -> dict[str, Tensor]:
        """Return what is kept after the step that follows a past; `settled` steps of zeros go before."""
        simulation = self._simulation(past[0]["x"].shape[1])
        nothing = {name: torch.zeros_like(past[0]["x"]) for name in self.names}
        for values in [*([nothing] * settled), *past]:
            simulation.x = values["x"].clone()
            simulation.state = {name: values[name].clone() for name in simulation.state}
            simulation.memory = values["memory"].clone() if "memory" in values else None
            simulation.step()
        after = {"x": simulation.x, **simulation.state}
        return after if simulation.memory is None else {**after, "memory": simulation.memory}

    def read_off(self, settled: int = 1) -> LinearUpdate:
        """Lead the rule through a past where each number has a column of its own.

        A step of zeros goes before, so that the oldest message is held for the first time when it is looked at.
        """
        agents, width = self.network.num_agents, self.network.num_agents * len(self.names)
        columns = width * len(self.ages)
        past: Past = []
        for step in range(self.depth + 1):
            values = {name: torch.zeros(agents, columns, dtype=torch.float64) for name in self.names}
            age = self.depth - step
            if age in self.ages:
                block = self.ages.index(age) * width
                for place, name in enumerate(self.names):
                    first = block + place * agents
                    values[name][:, first : first + agents] = self.small * torch.eye(agents, dtype=torch.float64)
            past.append(values)
        after = self.follow(past, settled)
        rows = torch.cat([after[name] for name in self.names]) / self.small
        blocks = rows.split(width, dim=1)
        keeps = bool(set(self.names) - {"x", "memory"})
        return LinearUpdate(dict(zip(self.ages, blocks, strict=True)), agents, self._starts() if keeps else None)

    def _starts(self) -> Float[Tensor, "k n"]:
        """Let the rule run from each agent's unit vector, and return the pasts that it has come through."""
        agents = self.network.num_agents
        simulation = self._simulation(agents)
        simulation.x = self.small * torch.eye(agents, dtype=torch.float64)
        simulation.state = self.algorithm.start(simulation.x, simulation.place)
        past: list[Tensor] = []
        for _ in range(self.depth + 2):
            simulation.step()
            kept = {"x": simulation.x, **simulation.state, "memory": simulation.memory}
            past.append(torch.cat([value for name in self.names if (value := kept[name]) is not None]))
        return torch.cat(past[: -self.depth - 2 : -1]) / self.small  # the newest first

    def check(self, update: LinearUpdate) -> None:
        """Make sure that the rule is linear, looks back no further, and is the same one step and two steps later."""
        for settled in (2, 3):
            later = self.read_off(settled)
            if any(not _close(later.matrices[age], matrix) for age, matrix in update.matrices.items()):
                raise _refused(self.algorithm, "is not the same at every step, as with rounds or schedules")
        shape = self.network.num_agents, COLUMNS
        for trial in range(TRIALS):
            chance = generator(0, "linear-past", trial)
            past = [
                {name: self.small * torch.randn(shape, generator=chance, dtype=torch.float64) for name in self.names}
                for _ in range(self.depth + 1)
            ]
            after = self.follow(past, settled=1)
            found = torch.cat([after[name] for name in self.names]) / self.small
            expected = sum(
                matrix @ torch.cat([past[self.depth - age][name] for name in self.names]) / self.small
                for age, matrix in update.matrices.items()
            )
            if not _close(found, torch.as_tensor(expected)):
                raise _refused(self.algorithm, "is not linear in the states, as with choices or normalised steps")


def _refused(algorithm: Algorithm, why: str) -> UserError:
    return UserError(f"{algorithm.name} with these options {why}: it has no single linear update to analyse")


def _close(first: Tensor, second: Tensor) -> bool:
    return bool(torch.allclose(first, second, rtol=TOLERANCE, atol=TOLERANCE))
