"""The paper's verification with simple functions: three agents on Rosenbrock's and Rastrigin's functions.

The paper gives the step 0.008, "according to Theorem 2", 500 iterations and clusters of 1 and 2 agents. It does not
give the start, the noise, the delays, theta or lambda. Theorem 2 asks for a step below 1/gamma, where gamma is the
largest curvature. The printed step is above that for both functions. So each function is run at the printed step, at a
step that the theorem allows, and divided by 100. After the division the theorem allows the printed step.

theta is fixed: with the criterion PC-ASGD may clip in every step; then delta_2 is 1, and there is no bound.
"""

import functools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from gossamer.algorithms import Algorithm, algorithm
from gossamer.engine.simulation import Simulation
from gossamer.engine.trajectory import FunctionSource
from gossamer.network import Network, network
from gossamer.seeding import generator
from gossamer.shapes import Float, Tensor
from gossamer.theory.bounds import FORMS, Constants, nonconvex_bound
from gossamer.theory.estimate import estimate_constants
from gossamer.theory.functions import FUNCTIONS, Function
from gossamer.theory.problem import FunctionProblem, hessian, spectral_norm
from gossamer.theory.stability import stability

CLUSTERS = (1, 2)
DELAYS = (1, 5, 10, 20, 40)
STEPS = 500
THETA = 0.3
PRINTED_LR = 0.008
SCALE = 0.01  # brings the curvatures, about 1900 and 400, below 1 / PRINTED_LR
NOISE = 5.0  # standard deviation of a gradient's coordinate, times the scale of the function
APART = 0.15  # agents start on a circle of this radius, turned by the seed
FAR = 1000.0  # from the minimum: nothing comes back from there

Row = dict[str, Any]
Path = Float[Tensor, "steps n d"]


@dataclass(frozen=True)
class ToyCase:
    """One run, without its seed."""

    function: str
    scale: float
    lr: float
    delay: int
    lam: float = 1.0


def toy_cases(delays: Sequence[int] = DELAYS) -> list[ToyCase]:
    """Return what is run: each function at the printed step, at a smaller one, and scaled.

    A small lambda, one of the three that the paper tries, shows the curvature term's share in a divergence: g * g is
    not limited by the curvature that it stands for, and grows with the square of a function's scale.
    """
    return [
        ToyCase(name, scale, lr, delay, lam)
        for name, smaller in (("rosenbrock", 0.0005), ("rastrigin", 0.002))
        for scale, lr, lam in (
            *((1.0, PRINTED_LR, 1.0), (1.0, smaller, 1.0)),
            *((1.0, smaller, 0.001), (SCALE, PRINTED_LR, 1.0)),
        )
        for delay in delays
    ]


def run_toy(
    seeds: int = 3,
    steps: int = STEPS,
    delays: Sequence[int] = DELAYS,
    on_case: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """Run every case with every seed, and return a row of plain values for each case.

    `on_case` is called with the number of finished cases and of all cases.
    """
    cases = toy_cases(delays)
    rows = []
    for done, case in enumerate(cases, start=1):
        rows.append(run_case(case, seeds, steps))
        if on_case is not None:
            on_case(done, len(cases))
    return rows


def run_case(case: ToyCase, seeds: int, steps: int) -> Row:
    """Run one case with every seed; all numbers are means over the seeds."""
    runs = [_run(case, seed, steps) for seed in range(seeds)]
    row: Row = asdict(case) | {"theta": THETA, "noise": NOISE * case.scale, "seeds": seeds, "steps": steps}
    row["diverged_at"] = [run.diverged_at for run in runs]
    row["status"] = _status(row["diverged_at"])
    gamma = max(run.gamma for run in runs)
    row |= {"gamma": gamma, "theorem_step_limit": 1 / gamma, "eta_tau_h": case.lr * case.delay * gamma}
    row["stable_eta_h"] = stable_eta_h(case.delay)
    shortest = min(len(run.gradient_squared) for run in runs)
    of_seeds = torch.stack([run.gradient_squared[:shortest] for run in runs])
    row["gradient_squared"] = _plain(of_seeds.mean(dim=0))  # of each step that all seeds have
    row["path"] = _plain(runs[0].path) if case.scale != 1 and row["status"] == "finished" else None
    return row | _bounds(case, runs, steps) | _ends(case, runs)


@functools.cache  # it depends on eta h alone, and takes seconds
def stable_eta_h(delay: int) -> float:
    """Return the largest step times curvature at which the agents settle in a bowl; lambda plays no part there."""
    limit = stability(_rule(1.0), _network(delay), lr=0.1, curvature=1.0).largest_stable_lr
    return limit if limit is not None else 0.0


def _rule(lam: float) -> Algorithm:
    return algorithm("pc-asgd", theta=THETA, lam=lam)


def _network(delay: int) -> Network:
    return network("clusters:" + ",".join(map(str, CLUSTERS)), delay=delay)


@dataclass(frozen=True)
class _Run:
    """One run: its states, until one is too far away, and what was measured on them."""

    path: Path
    diverged_at: int | None
    gradient_squared: Float[Tensor, " steps"]  # of F, the sum over agents, at each state
    gamma: float
    constants: Constants | None  # none where a run diverged


def _run(case: ToyCase, seed: int, steps: int) -> _Run:
    function = FUNCTIONS[case.function](case.scale)
    problem = FunctionProblem(function, sum(CLUSTERS), NOISE * case.scale, seed)
    rule, net, start = _rule(case.lam), _network(case.delay), starts(function, seed)
    source = FunctionSource(problem.gradient, None)
    simulation = Simulation(rule, net, source, start, lr=lambda step: case.lr, seed=seed)
    path, diverged_at = [start], None
    for step in range(1, steps + 1):
        simulation.step()
        if not bool((simulation.x - function.minimum).norm(dim=1).max() < FAR):  # also where it is no number
            diverged_at = step
            break
        path.append(simulation.x)
    states = torch.stack(path)
    squared = function.gradient(states).square().sum(dim=(1, 2))
    if diverged_at is not None:
        # The curvature at its start: on its way there is no largest one.
        return _Run(states, diverged_at, squared, _curvature(problem, start), None)
    constants = estimate_constants(problem, states, network=net, algorithm=rule, tau=case.delay).constants
    assert constants.gamma is not None
    return _Run(states, None, squared, constants.gamma, constants)


def _curvature(problem: FunctionProblem, x: Float[Tensor, "n d"]) -> float:
    """Return the largest curvature at the agents' states."""
    return float(spectral_norm(hessian(problem, x), x).max())


def starts(function: Function, seed: int) -> Float[Tensor, "n d"]:
    """Return where the agents start: apart from each other, and elsewhere for each seed.

    The start decides most of a mean over iterations, so one start cannot stand for all.
    """
    agents = sum(CLUSTERS)
    turned = torch.rand(1, generator=generator(seed, "toy-starts"), dtype=torch.float64)
    angles = (torch.arange(agents, dtype=torch.float64) / agents + turned) * 2 * math.pi
    return function.start + APART * torch.stack([torch.cos(angles), torch.sin(angles)], dim=1)


def _bounds(case: ToyCase, runs: Sequence[_Run], steps: int) -> Row:
    """Return Theorem 2's bound in each form, and the part of it that falls with the number of steps."""
    limit = 1 / max(run.gamma for run in runs)
    above = f"the learning rate {case.lr:g} is not below 1/gamma = {limit:.4g}"
    diverged = above if case.lr >= limit else "the run diverged: nothing bounds its gradients"
    constants = [run.constants for run in runs if run.constants is not None]
    bounds: dict[str, Any] = {}
    for form in FORMS:
        found = [nonconvex_bound(each, case.lr, case.delay, steps, form) for each in constants]
        reason = next((bound.reason for bound in found if bound.reason), None)
        if len(constants) < len(runs):
            reason = diverged
        known = [(bound.value, bound.terms["start"]) for bound in found if bound.value is not None and bound.terms]
        value, start = (None, None) if reason else map(statistics.fmean, zip(*known, strict=True))
        bounds[form] = {"value": value, "start": start, "reason": reason}
    return {"bounds": bounds}


def _ends(case: ToyCase, runs: Sequence[_Run]) -> Row:
    """Return where a case ended; None for one that diverged."""
    names = ("average_gradient_squared", "largest_gradient_squared", "final_gradient_squared")
    if any(run.constants is None for run in runs):
        return dict.fromkeys((*names, "average_by_seed", "final_by_seed", "distance_to_minimum", "f_mean", "eta_h_end"))
    function = FUNCTIONS[case.function](case.scale)
    problem = FunctionProblem(function, sum(CLUSTERS))
    # The theorem averages over x_1 to x_T, and x_1 is the start.
    averages = [float(run.gradient_squared[:-1].mean()) for run in runs]
    finals = [float(run.gradient_squared[-max(1, len(run.path) // 10) :].mean()) for run in runs]
    last = [run.path[-1] for run in runs]
    return {
        "average_gradient_squared": statistics.fmean(averages),
        "average_by_seed": averages,
        "largest_gradient_squared": statistics.fmean(float(run.gradient_squared.max()) for run in runs),
        "final_gradient_squared": statistics.fmean(finals),
        "final_by_seed": finals,
        "distance_to_minimum": statistics.fmean(float((x - function.minimum).norm(dim=1).mean()) for x in last),
        "f_mean": statistics.fmean(float(function.value(x).mean()) for x in last),
        "eta_h_end": case.lr * statistics.fmean(_curvature(problem, x) for x in last),
    }


def _status(diverged_at: Sequence[int | None]) -> str:
    """Return 'finished', or at which step the seeds diverged."""
    steps = sorted(step for step in diverged_at if step is not None)
    if not steps:
        return "finished"
    when = f"step {steps[0]}" if steps[0] == steps[-1] else f"steps {steps[0]} to {steps[-1]}"
    share = "" if len(steps) == len(diverged_at) else f" in {len(steps)} of {len(diverged_at)} seeds"
    return f"diverged at {when}{share}"


def _plain(values: Float[Tensor, "..."]) -> Any:
    """Return nested lists of numbers that a file holds without a tail of digits."""
    if values.ndim == 0:
        return float(f"{float(values):.6g}")
    return [_plain(value) for value in values]
