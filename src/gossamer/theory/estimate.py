"""The constants of the bounds, estimated from a run.

An estimate is the largest (for mu the smallest) value seen at a few steps of the run. The statements need a constant
that holds everywhere, so the true one can only be worse. Exceptions: sigma and M are the largest of several means over
a few draws, slightly too large; F* = 0 makes mu too small and the first gap too large.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from gossamer.algorithms import Algorithm, algorithm_class
from gossamer.algorithms.p_asgd import Predicting
from gossamer.algorithms.theta import ByAge, Hindsight
from gossamer.errors import UserError
from gossamer.network import Arrivals, Fixed, Network, PerLink, check_assumption_2
from gossamer.shapes import Float, Tensor
from gossamer.theory.bounds import Constants
from gossamer.theory.problem import Operator, Problem, diagonal, exact_gradient, hessian, spectral_norm

FRESH = 1 << 40  # number of the first draw; a run numbers its own draws by steps
OUTER_DRAWS = 4  # gradients per probe whose outer products are compared with the Hessian
LARGEST_DIAGONAL = 5000  # parameters; each takes one product with the Hessian
LONG = 10_000  # steps of a schedule of theta that are all checked
FAR = (10**5, 10**6, 10**8, 10**12)  # later steps that are checked too
ALMOST_ONE = 1 - 2**-53


@dataclass(frozen=True)
class Estimates:
    """Constants from a run.

    Attributes:
        constants: those that can be estimated; the others are None.
        how: for each, how it was estimated or why it was not.
    """

    constants: Constants
    how: dict[str, str]

    def as_dict(self) -> dict[str, dict[str, float | str | None]]:
        """Return value and method of each constant, as plain values."""
        return {
            part.name: {"value": getattr(self.constants, part.name), "how": self.how[part.name]}
            for part in fields(Constants)
        }


Window = Float[Tensor, "_ n d"]  # the states of a step and the next ones, up to tau in all


def windows_of(path: Float[Tensor, "steps n d"], tau: int, probes: int) -> list[Window]:
    """Return the windows at evenly spaced steps of a path."""
    places = torch.linspace(0, len(path) - 1, min(probes, len(path))).round().long().unique()
    return [path[place : place + max(tau, 1)] for place in places.tolist()]


def estimate_constants(
    problem: Problem,
    path: Float[Tensor, "steps n d"] | Sequence[Window],
    *,
    network: Network,
    algorithm: Algorithm,
    tau: int,
    draws: int = 8,
    probes: int = 20,
    thetas: tuple[float, float] | None = None,
) -> Estimates:
    """Estimate all constants from the states of a run.

    Args:
        problem: the agents' losses and draws of their noisy gradients.
        path: every state of a run, or windows of it.
        network: the network of the run.
        algorithm: the rule of the run, for lambda and theta.
        tau: the delay in steps.
        draws: noisy gradients per probe.
        probes: steps of a path at which to estimate.
        thetas: the smallest and the largest theta that the run used, if recorded.
    """
    if network.schedule is not None:
        raise UserError(
            f"schedule '{network.schedule.spec()}' changes the graph, but bounds are for a fixed one; leave it out"
        )
    windows = windows_of(path, tau, probes) if isinstance(path, torch.Tensor) else list(path)
    if not all(bool(window.isfinite().all()) for window in windows):
        raise UserError("the run has diverged, so no constant bounds its gradients; use a smaller learning rate")
    lam = float(getattr(algorithm, "lam", 0.0))
    found = _from_gradients(problem, windows, lam, draws) | _from_curvature(problem, windows, draws)
    found |= _from_rule(network, algorithm, thetas) | {"lam": (lam, "an option of the rule")}
    values = {name: value for name, (value, _) in found.items()}
    return Estimates(Constants(**values), {name: how for name, (_, how) in found.items()})


Found = dict[str, tuple[float | None, str]]  # by constant: its value, and how it was found


def _from_gradients(problem: Problem, windows: Sequence[Window], lam: float, draws: int) -> Found:
    """Estimate G, sigma, B, M, mu and the first gap from gradients."""
    largest, variance, predicted, moment, ratios, gaps = [], [], [], [], [], []
    for index, window in enumerate(windows):
        x = window[0]
        loss, exact = exact_gradient(problem, x)
        noisy = torch.stack([problem.gradient(x, FRESH + index * draws + draw) for draw in range(draws)])
        largest.append(_norms(noisy).max())
        variance.append(_norms(noisy - exact).square().mean())
        # The compensated gradient of the analysis moves with the sender's own displacement.
        ahead = torch.stack([_norms(noisy + lam * noisy.square() * (then - x)) for then in window])  # [r, draws]
        predicted.append(ahead.max())
        moment.append(ahead.square().mean(dim=1).max())
        gap = float(loss.sum()) - problem.best
        gaps.append(gap)
        if gap > 0:
            ratios.append(0.5 * float(exact.square().sum()) / gap)
    at = f"{len(windows)} steps of the run, {draws} draws each"
    least = f"the smallest ||grad F||^2 / (2 (F - F*)) at {len(windows)} steps, F* = {problem.best:g}"
    return {
        "G": (float(max(largest)), f"the largest norm of a noisy gradient at {at}"),
        "sigma": (
            float(max(variance)) ** 0.5,
            f"root of the largest mean squared distance from the exact gradient at {at}",
        ),
        "B": (float(max(predicted)), f"the largest norm of g + lambda g g (x(s + r) - x(s)), r < tau, at {at}"),
        "M": (float(max(moment)), f"the largest mean square of the same at {at}"),
        "mu": (min(ratios, default=None), least),
        "initial_gap": (gaps[0], f"F at the first step less F* = {problem.best:g}"),
    }


def _from_curvature(problem: Problem, windows: Sequence[Window], draws: int) -> Found:
    """Estimate gamma, xi, epsilon and epsilon_D from Hessians."""
    points = [window[0] for window in windows]
    smooth, outer, changes = [], [], []
    before: tuple[Tensor, Operator] | None = None
    for index, x in enumerate(points):
        product = hessian(problem, x)
        smooth.append(spectral_norm(product, x).max())
        products = [
            spectral_norm(_outer_less(problem.gradient(x, FRESH + index * draws + draw), product), x)
            for draw in range(min(draws, OUTER_DRAWS))
        ]
        outer.append(torch.stack(products).mean(dim=0).max())
        if before is not None:
            changed, moved = spectral_norm(_difference(product, before[1]), x), (x - before[0]).norm(dim=1)
            changes += (changed / moved)[moved > 0].tolist()
        before = x, product
    size = points[0].shape[1]
    diagonal_less: tuple[float | None, str]
    diagonal_less = None, f"not estimated: {size} parameters, above the limit of {LARGEST_DIAGONAL}; give it by hand"
    if size <= LARGEST_DIAGONAL:
        off_diagonal = max(_off_diagonal_norm(problem, x) for x in (points[0], points[-1]))
        diagonal_less = off_diagonal, "the largest spectral norm of Diag(H) - H at the first and the last probe"
    at = f"power iteration on products with the Hessian at {len(points)} steps"
    return {
        "gamma": (float(max(smooth)), f"the largest eigenvalue by {at}"),
        "xi": (
            max(changes, default=None),
            "the largest change of the Hessian over the distance between successive probes",
        ),
        "epsilon": (float(max(outer)), f"the largest mean spectral norm of g g^T - H, agent by agent, by {at}"),
        "epsilon_D": diagonal_less,
    }


def _from_rule(network: Network, algorithm: Algorithm, thetas: tuple[float, float] | None) -> Found:
    """Return theta_m and delta_2."""
    seen = thetas or theta_range(algorithm, network)
    if seen is None:
        said = f"{algorithm.name} neither predicts nor clips: the statements are about pc-asgd, p-asgd and c-asgd"
        return {"theta_m": (None, said), "delta_2": (None, said)}
    source = "with late messages the run used" if thetas else "the rule may use"
    words = f"{source} theta from {seen[0]:g} to {seen[1]:g}"
    at = f"theta e_2(W) + (1 - theta) e_2(W~), the larger end: {words}"
    return {"theta_m": (seen[1], words), "delta_2": (delta_2(network, seen), at)}


@functools.lru_cache
def theta_range(
    algorithm: Algorithm, network: Network | None = None, *, momentum: float = 0.0, steps: int = LONG
) -> tuple[float, float] | None:
    """Return the smallest and the largest theta that a rule may use; None for rules without theta.

    A theta that follows from the ages of messages needs the network; without it, it may be anything in [0, 1].
    """
    if isinstance(algorithm, algorithm_class("c-asgd")):
        return 0.0, 0.0
    if not isinstance(algorithm, Predicting):
        return None
    if not isinstance(algorithm, algorithm_class("pc-asgd")):
        return 1.0, 1.0
    policy = getattr(algorithm, "policy", None)
    if policy is None:
        return 0.0, 1.0  # the criterion may choose either at any step
    if isinstance(policy, ByAge):
        shape = {name: getattr(algorithm, name) for name in ("predictor", "lag")}
        return (0.0, 1.0) if network is None else _by_age(policy, network, momentum=momentum, **shape)
    chances = torch.tensor([0.0, ALMOST_ONE], dtype=torch.float64)
    values = torch.stack([policy.at(t, chances) for t in (*range(min(steps, LONG)), *(FAR if steps >= LONG else ()))])
    low, high = (round(float(value), 12) for value in (values.min(), values.max()))
    return low, high


def _by_age(policy: ByAge, network: Network, **setting: Any) -> tuple[float, float]:
    ages = ages_held(network)
    values = [policy.at(age, radius=network.late_radius, **setting) for age in (ages or [network.delay.largest])]
    return min(values) if policy.by_hindsight is Hindsight.NONE else 0.0, max(values)


def ages_held(network: Network) -> list[int]:
    """Return the ages of late messages once all have arrived; with delays by chance, the smallest and the largest."""
    arrivals = Arrivals(network, 0)
    if not isinstance(network.delay, Fixed | PerLink) or network.loss:
        return [network.reliable_delay + 1, arrivals.largest_age]
    for step in range(arrivals.largest_age + 1):
        held = arrivals.advance_list(step)
    return sorted(set(held[held > network.reliable_delay].tolist()))


def delta_2(network: Network, theta: tuple[float, float]) -> float:
    """Return the largest theta e_2(W) + (1 - theta) e_2(W~) over a range of theta.

    It is linear in theta, so an end of the range is the largest. e_2 is the second largest absolute eigenvalue, by
    which the proof contracts; under Assumption 2 (c) it is the second largest eigenvalue, as printed.
    """
    whole, clipped = check_assumption_2(network.W).slem, check_assumption_2(network.W_clip).slem
    return max(share * whole + (1 - share) * clipped for share in theta)


def _norms(stacked: Float[Tensor, "draws n d"]) -> Float[Tensor, " draws"]:
    norms: Tensor = stacked.flatten(1).norm(dim=1)
    return norms


def _outer_less(g: Float[Tensor, "n d"], product: Operator) -> Operator:
    return lambda v: g * (g * v).sum(dim=1, keepdim=True) - product(v)


def _difference(first: Operator, second: Operator) -> Operator:
    return lambda v: first(v) - second(v)


def _off_diagonal_norm(problem: Problem, x: Float[Tensor, "n d"]) -> float:
    product = hessian(problem, x)
    diag = diagonal(product, x)
    return float(spectral_norm(lambda v: diag * v - product(v), x).max())
