"""The update of a rule on a quadratic, as a linear map from the recent past to the next step.

On losses f_i(x) = h x^2 / 2 a rule without randomness is linear near the optimum, and with fixed delays it is the same
at every step: y(t + 1) = sum over ages s of A_s y(t - s), where y contains x and the vectors that the rule and the
local optimiser keep. The simulator measures the matrices: it gets a past in which each number is 1 in a column of its
own, and takes one step. No formula is copied here, so your own rules are analysed too.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from gossamer.algorithms import Algorithm
from gossamer.algorithms.theta import ByAge, Hindsight
from gossamer.engine.simulation import Simulation
from gossamer.engine.trajectory import FunctionSource
from gossamer.errors import UserError
from gossamer.network import Arrivals, Fixed, Network, PerLink
from gossamer.seeding import generator
from gossamer.shapes import Float, Tensor
from gossamer.state.local import LocalOptimizer
from gossamer.theory.estimate import theta_range

SMALL = 1e-5  # size of tau gradients: g * g is then 1e-10 of g, so curvature estimates vanish
TOLERANCE = 1e-6
TRIALS, COLUMNS = 6, 3
BETWEEN, OUTSIDE = (1 / 16, 2.0), (1e-6, 0.5, 16.0)  # rates times curvature: measured for a line, and to check it
PLAIN = LocalOptimizer()

Past = list[dict[str, Float[Tensor, "n columns"]]]  # the kept vectors at each step, oldest first


@dataclass(frozen=True)
class LinearUpdate:
    """y(t + 1) = sum of matrices[s] y(t - s); y contains x of all agents first, then the other kept vectors."""

    matrices: dict[int, Float[Tensor, "m m"]]  # by age
    num_agents: int
    starts: Callable[[], Float[Tensor, "k n"]] | None = None  # for rules that keep vectors: the first stacked pasts

    @property
    def size(self) -> int:
        """How many numbers describe one step."""
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
    """Return a rule's update on f(x) = curvature x^2 / 2; refuse rules without a fixed linear update.

    `check` tests this; one test is enough for all learning rates.
    """
    if not curvature > 0:
        raise UserError(f"curvature must lie above 0, got {curvature}; use the largest one of your loss, such as 10")
    probe = _Probe(algorithm, network, curvature, local)
    update = probe.read_off(lr)
    if check:
        probe.check(update, lr)
    return update


def over_rates(
    algorithm: Algorithm, network: Network, curvature: float, local: LocalOptimizer = PLAIN
) -> Callable[[float], LinearUpdate]:
    """Return a rule's update as a function of the learning rate.

    Almost every rule is affine in it: A_s = B_s + lr D_s. Then two measurements are enough for all rates. Others
    tell whether it is so; if not, each rate is measured.
    """
    probe = _Probe(algorithm, network, curvature, local)
    low, high = (scale / curvature for scale in BETWEEN)
    at_low, at_high = probe.read_off(low).matrices, probe.read_off(high).matrices
    slopes = {age: (at_high[age] - matrix) / (high - low) for age, matrix in at_low.items()}

    def on_the_line(lr: float) -> LinearUpdate:
        matrices = {age: matrix + (lr - low) * slopes[age] for age, matrix in at_low.items()}
        return LinearUpdate(matrices, network.num_agents, probe.starts(lr))

    for scale in OUTSIDE:
        measured, expected = probe.read_off(scale / curvature), on_the_line(scale / curvature)
        if any(not _close(measured.matrices[age], matrix) for age, matrix in expected.matrices.items()):
            return probe.read_off
    return on_the_line


class _Probe:
    """Takes a simulation through a given past and measures its next step."""

    def __init__(self, algorithm: Algorithm, network: Network, curvature: float, local: LocalOptimizer) -> None:
        self.algorithm, self.network, self.curvature, self.local = algorithm, network, curvature, local
        algorithm.check(network)
        if algorithm.draws:
            raise _refused(algorithm, "draws at random at every step; analyse the values that it draws from one by one")
        if algorithm.period > 1 or algorithm.period_inside > 1:
            raise _refused(algorithm, "sends in rounds; set its period to 1")
        if algorithm.totals:
            raise _refused(algorithm, "sends running totals, which may grow while the states converge")
        if getattr(algorithm, "every", 1) > 1:
            raise _refused(algorithm, "averages at some steps only; set every to 1")
        if getattr(algorithm, "consensus_steps", 0):
            raise _refused(algorithm, "begins with another rule; set consensus_steps to 0")
        theta = theta_range(algorithm, network, momentum=local.momentum)
        # By the age of a message it may differ between links; `check` finds out whether it differs between steps.
        if theta is not None and theta[0] != theta[1] and not self._theta_by_age:
            low, high = theta
            raise _refused(algorithm, f"has theta between {low:g} and {high:g}; analyse --theta {low:g} and {high:g}")
        if network.schedule is not None:
            raise UserError(
                f"schedule '{network.schedule.spec()}' changes the graph, so there is no fixed update; leave it out"
            )
        if not isinstance(network.delay, Fixed | PerLink) or network.loss:
            raise UserError(
                f"delay {network.delay.spec()} with loss {network.loss:g} differs from message to message, so there is "
                f"no fixed update; use fixed delays, such as --delay {network.delay.largest}"
            )
        self.ages = self._ages()
        self.names = self._names()
        self.small = SMALL / max(1.0, curvature * max(1, self.depth))

    @property
    def _theta_by_age(self) -> bool:
        policy = getattr(self.algorithm, "policy", None)
        return isinstance(policy, ByAge) and policy.by_hindsight is Hindsight.NONE

    def _ages(self) -> list[int]:
        """Return the ages of the messages once all have arrived, and 0."""
        if self.algorithm.waits:
            return [0]
        arrivals = Arrivals(self.network, 0)
        for step in range(arrivals.largest_age + 1):
            held = arrivals.advance_list(step)
        return sorted({0, *held[held >= 0].tolist()})

    @property
    def depth(self) -> int:
        return self.ages[-1]

    def _simulation(self, columns: int, lr: float = 0.0) -> Simulation:
        source = FunctionSource(lambda x, _: self.curvature * x, None)
        start = torch.zeros(self.network.num_agents, columns, dtype=torch.float64)
        return Simulation(self.algorithm, self.network, source, start, lr=lambda _: lr, local=self.local)

    def _names(self) -> tuple[str, ...]:
        """Return the names of what is kept between steps; it must have the shape of x to be part of the map."""
        simulation = self._simulation(self.network.num_agents + 2)  # a size that nothing else has
        kept = {name: tuple(value.shape) for name, value in simulation.state.items()}
        odd = [name for name, shape in kept.items() if shape != tuple(simulation.x.shape)]
        if odd:
            raise _refused(self.algorithm, f"keeps '{odd[0]}', which is no vector like x")
        return ("x", *kept, *(("memory",) if self.local.momentum else ()))

    def follow(self, past: Past, lr: float, settled: int) -> dict[str, Tensor]:
        """Return what is kept one step after a past; `settled` steps of zeros precede the past."""
        simulation = self._simulation(past[0]["x"].shape[1], lr)
        nothing = {name: torch.zeros_like(past[0]["x"]) for name in self.names}
        for values in [*([nothing] * settled), *past]:
            simulation.x = values["x"].clone()
            simulation.state = {name: values[name].clone() for name in simulation.state}
            simulation.memory = values["memory"].clone() if "memory" in values else None
            simulation.step()
        after = {"x": simulation.x, **simulation.state}
        return after if simulation.memory is None else {**after, "memory": simulation.memory}

    def read_off(self, lr: float, settled: int = 1) -> LinearUpdate:
        """Measure the matrices with a past in which each number has its own column.

        A step of zeros precedes it, so the oldest message has just arrived.
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
        after = self.follow(past, lr, settled)
        rows = torch.cat([after[name] for name in self.names]) / self.small
        blocks = rows.split(width, dim=1)
        return LinearUpdate(dict(zip(self.ages, blocks, strict=True)), agents, self.starts(lr))

    def starts(self, lr: float) -> Callable[[], Float[Tensor, "k n"]] | None:
        """Return what runs a rule that keeps vectors from its start; None for other rules."""
        return functools.partial(self._run, lr) if set(self.names) - {"x", "memory"} else None

    def _run(self, lr: float) -> Float[Tensor, "k n"]:
        """Run the rule from each agent's unit vector and return its pasts."""
        agents = self.network.num_agents
        simulation = self._simulation(agents, lr)
        simulation.x = self.small * torch.eye(agents, dtype=torch.float64)
        simulation.state = self.algorithm.start(simulation.x, simulation.place)
        past: list[Tensor] = []
        for _ in range(self.depth + 2):
            simulation.step()
            kept = {"x": simulation.x, **simulation.state, "memory": simulation.memory}
            past.append(torch.cat([value for name in self.names if (value := kept[name]) is not None]))
        return torch.cat(past[: -self.depth - 2 : -1]) / self.small  # the newest first

    def check(self, update: LinearUpdate, lr: float) -> None:
        """Refuse a rule that is not linear, needs an older past, or changes within the next two steps."""
        for settled in (2, 3):
            later = self.read_off(lr, settled)
            if any(not _close(later.matrices[age], matrix) for age, matrix in update.matrices.items()):
                raise _refused(self.algorithm, "is not the same at every step (rounds or schedules?)")
        shape = self.network.num_agents, COLUMNS
        for trial in range(TRIALS):
            chance = generator(0, "linear-past", trial)
            past = [
                {name: self.small * torch.randn(shape, generator=chance, dtype=torch.float64) for name in self.names}
                for _ in range(self.depth + 1)
            ]
            after = self.follow(past, lr, settled=1)
            found = torch.cat([after[name] for name in self.names]) / self.small
            expected = sum(
                matrix @ torch.cat([past[self.depth - age][name] for name in self.names]) / self.small
                for age, matrix in update.matrices.items()
            )
            if not _close(found, torch.as_tensor(expected)):
                raise _refused(self.algorithm, "is not linear in the states (choices or normalised steps?)")


def _refused(algorithm: Algorithm, why: str) -> UserError:
    return UserError(f"{algorithm.name} with these options {why}: it has no single linear update to analyse")


def _close(first: Tensor, second: Tensor) -> bool:
    return bool(torch.allclose(first, second, rtol=TOLERANCE, atol=TOLERANCE))
