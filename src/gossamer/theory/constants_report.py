"""The report of `gossamer bounds`: the constants of a run, its bounds in all forms, and what the run measured."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from gossamer.engine.simulation import NonFinite
from gossamer.engine.training import Training
from gossamer.errors import UserError
from gossamer.network import check_assumption_2
from gossamer.run.machine import arithmetic
from gossamer.shapes import Float, Tensor
from gossamer.theory.bounds import CAVEATS, FORMS, Bound, Constants, consensus_bound, nonconvex_bound, pl_bound
from gossamer.theory.estimate import Estimates, Window, estimate_constants
from gossamer.theory.problem import Problem, TaskProblem, exact_gradient

OnStep = Callable[[int], None]


@dataclass(frozen=True)
class Observation:
    """States of a run at a few steps and the steps after them, and the range of theta that it used."""

    windows: list[Window]
    last: Float[Tensor, "n d"]
    steps: int
    thetas: tuple[float, float] | None


def observe(training: Training, tau: int, probes: int, on_step: OnStep | None = None) -> Observation:
    """Train to the end and keep what the estimates need."""
    simulation, steps = training.simulation, training.steps
    begins = {int(step) for step in torch.linspace(0, max(0, steps - max(tau, 1)), probes).round()}
    open_windows: list[list[Tensor]] = []
    windows: list[Window] = []
    shares: list[float] = []
    with arithmetic(training.settings):
        for step in range(steps):
            if step in begins:
                open_windows.append([])
            for window in open_windows:
                window.append(simulation.x)
            windows += [torch.stack(window) for window in open_windows if len(window) == max(tau, 1)]
            open_windows = [window for window in open_windows if len(window) < max(tau, 1)]
            predict = simulation.step().predict
            if predict is not None:
                shares += predict[~predict.isnan()].unique().tolist()
            if on_step is not None:
                on_step(step + 1)
    thetas = (min(shares), max(shares)) if shares else None
    return Observation(windows, simulation.x, steps, thetas)


def report(
    training: Training,
    *,
    probes: int = 10,
    draws: int = 8,
    examples: int = 512,
    given: dict[str, float] | None = None,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Train, estimate the constants that are not `given`, and return the bounds with what the run measured."""
    tau, lr = training.network.delay.largest, training.settings.lr
    problem = TaskProblem(training, examples)
    try:
        seen = observe(training, tau, probes, on_step)
    except NonFinite as error:
        raise UserError(f"{error}; there is nothing to estimate from") from None
    with arithmetic(training.settings):
        estimates = estimate_constants(
            problem,
            seen.windows,
            network=training.network,
            algorithm=training.algorithm,
            tau=tau,
            draws=draws,
            thetas=seen.thetas,
        )
        measured = _measured(problem, seen)
    estimates = _with_given(estimates, given or {})
    reason = why_not(training, estimates)
    return {
        "algorithm": training.algorithm.name,
        "network": training.network.spec,
        "tau": tau,
        "lr": lr,
        "steps": seen.steps,
        "constants": estimates.as_dict(),
        "bounds": all_bounds(estimates.constants, lr, tau, seen.steps, reason),
        "measured": measured,
        "caveats": list(CAVEATS),
    }


def all_bounds(
    constants: Constants, lr: float, tau: int, steps: int, reason: str | None = None
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return every bound in every form as plain values; with a `reason` no bound has a value."""
    makers = {
        "consensus": lambda form: consensus_bound(constants, lr, tau, form),
        "pl": lambda form: pl_bound(constants, lr, tau, steps, form),
        "nonconvex": lambda form: nonconvex_bound(constants, lr, tau, steps, form),
    }
    return {
        name: {form: asdict(Bound(None, reason) if reason else make(form)) for form in FORMS}
        for name, make in makers.items()
    }


# The options that the statements are about: the update as the paper prints it.
_PRINTED = {
    "horizon": "sum",
    "source": "sent",
    "self_consistent": False,
    "lam_form": "linear",
    "gradient_at": "own",
    "consensus_steps": 0,
}


def why_not(training: Training, estimates: Estimates) -> str | None:
    """Return why the statements do not apply to this run, or None."""
    settings, network = training.settings, training.network
    if estimates.constants.theta_m is None:
        return estimates.how["theta_m"]
    if not training.simulation.local.plain:
        return "the statements are about plain SGD; set momentum and weight decay to 0"
    if settings.schedule != "constant" or settings.warmup:
        return "the statements are about a constant learning rate; use --schedule constant without warm-up"
    for name, printed in _PRINTED.items():
        if getattr(training.algorithm, name, printed) != printed:
            return f"the statements are about {name}={printed}, the run has {getattr(training.algorithm, name)}"
    for name, matrix in (("W", network.W), ("W~", network.W_clip)):
        if not check_assumption_2(matrix).stochastic:
            return f"{name} is not doubly stochastic, as Assumption 2 (a) asks; use symmetric weights"
    return None


def _measured(problem: Problem, seen: Observation) -> dict[str, float]:
    """Return the measured values of the three bounded quantities, at the same steps."""
    squares, distances = [], []
    for window in seen.windows:
        x = window[0]
        squares.append(float(exact_gradient(problem, x)[1].square().sum()))
        distances.append(float((x - x.mean(dim=0)).norm(dim=1).max()))
    loss, _ = exact_gradient(problem, seen.last)
    distances.append(float((seen.last - seen.last.mean(dim=0)).norm(dim=1).max()))
    return {
        "consensus": max(distances),
        "pl": float(loss.sum()) - problem.best,
        "nonconvex": sum(squares) / len(squares),
    }


def _with_given(estimates: Estimates, given: dict[str, float]) -> Estimates:
    how = {**estimates.how, **dict.fromkeys(given, "given by hand")}
    return Estimates(replace(estimates.constants, **given), how)
