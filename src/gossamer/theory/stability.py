"""Whether a setting can work: the spectral radius of a rule's linearised update, before a day of training.

With y(t + 1) = sum_s A_s y(t - s) (linear.py) the stacked past z(t) = (y(t), y(t-1), …) obeys z(t + 1) = C z(t), C the
companion matrix. Disturbances die out exactly if all eigenvalues of C lie inside the unit circle; the largest of them
is the factor by which the slowest one shrinks, or the fastest one grows, each step.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer.algorithms import Algorithm
from gossamer.errors import UserError
from gossamer.network import Network
from gossamer.shapes import Float, Tensor
from gossamer.theory.linear import LinearUpdate, linearise

DENSE = 1200  # numbers in the stacked past: above, only the largest eigenvalues are looked for
LARGEST = 200_000
SLOW = 1e-4  # eta h at which the pace is read off
CONSERVED = 1e-7  # how near to 1 an eigenvalue is that stands for something conserved
BISECTIONS = 40
HIGHEST = 1e6


@dataclass(frozen=True)
class Stability:
    """What the linearised update says about a setting."""

    stable: bool
    spectral_radius: float
    half_life: float | None  # steps after which a disturbance has halved
    largest_stable_lr: float | None  # None: every rate that was tried is unstable
    pace: float  # progress along a small gradient, 1 is the synchronous rate
    noise: tuple[float, ...]  # variance of the noise that a step injects into each agent, 1 is its own gradient's

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return asdict(self) | {"noise": list(self.noise)}


def stability(
    algorithm: Algorithm,
    network: Network,
    lr: float,
    curvature: float,
    *,
    momentum: float = 0.0,
    nesterov: bool = False,
) -> Stability:
    """Analyse a rule at a learning rate on losses of this curvature (the largest eigenvalue of their Hessian)."""
    if not 0 < lr < math.inf:
        raise UserError(f"lr must lie above 0 and be finite, got {lr}; use for example 0.05")

    linearise(algorithm, network, lr, curvature, momentum=momentum, nesterov=nesterov)  # checked once

    def radius(rate: float, h: float = curvature) -> float:
        update = linearise(algorithm, network, rate, h, momentum=momentum, nesterov=nesterov, check=False)
        return spectral_radius(update)

    at_lr = radius(lr)
    return Stability(
        stable=at_lr < 1,
        spectral_radius=at_lr,
        half_life=math.log(0.5) / math.log(at_lr) if 0 < at_lr < 1 else None,
        largest_stable_lr=_limit(radius, lr, stable=at_lr < 1),
        pace=_pace(lambda slow: radius(lr, slow / lr)) * (1 - momentum),
        noise=injected_noise(algorithm, network),
    )


def spectral_radius(update: LinearUpdate) -> float:
    """Return the largest absolute eigenvalue of the companion matrix.

    A rule that keeps vectors may conserve something, as gradient tracking the sum of its trackers: an eigenvalue of 1.
    It starts from the right value and no step changes it, so that such eigenvalues do not count.
    """
    if update.size * (update.depth + 1) <= DENSE:
        values = np.linalg.eigvals(companion(update).numpy())
    else:
        values = _largest_eigenvalues(update)
    if update.keeps:
        values = values[np.abs(values - 1) > CONSERVED]
    return float(np.abs(values).max(initial=0.0))


def companion(update: LinearUpdate) -> Float[Tensor, "k k"]:
    """Return the matrix that moves the stacked past by one step."""
    size = update.size
    matrix = torch.zeros((size * (update.depth + 1),) * 2, dtype=torch.float64)
    for age, block in update.matrices.items():
        matrix[:size, age * size : (age + 1) * size] = block
    matrix[size:, :-size] = torch.eye(size * update.depth, dtype=torch.float64)
    return matrix


def _largest_eigenvalues(update: LinearUpdate) -> NDArray[Any]:
    """Return a few eigenvalues without the matrix, for networks with many agents or long delays."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs  # slow to import

    size, total = update.size, update.size * (update.depth + 1)
    if total > LARGEST:
        raise UserError(
            f"{size} numbers a step and a delay of {update.depth} steps make a past of {total}, above the limit "
            f"of {LARGEST}; use a smaller network or delay"
        )
    blocks = {age: block.numpy() for age, block in update.matrices.items()}

    def move(z: NDArray[Any]) -> NDArray[Any]:
        past = z.reshape(-1, size)
        return np.concatenate([sum(block @ past[age] for age, block in blocks.items()), z[:-size]])

    operator = LinearOperator((total, total), matvec=move, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(total)
    try:
        values = eigs(operator, k=12, ncv=80, which="LM", return_eigenvectors=False, v0=start, maxiter=2000)
    except ArpackNoConvergence as error:
        values = error.eigenvalues
        if not len(values):
            raise UserError("the eigenvalues of this update are too close together to be told apart") from None
    return np.asarray(values)


def _limit(radius: Callable[[float], float], lr: float, *, stable: bool) -> float | None:
    """Return the rate at which stability ends, by bisection from the given rate outwards."""
    inside, outside = (lr, 2 * lr) if stable else (lr / 2, lr)
    while stable and radius(outside) < 1:
        inside, outside = outside, 2 * outside
        if outside > HIGHEST:
            return math.inf
    while not stable and radius(inside) >= 1:
        inside, outside = inside / 2, inside
        if inside < 1e-12:
            return None
    for _ in range(BISECTIONS):
        middle = math.sqrt(inside * outside)
        inside, outside = (middle, outside) if radius(middle) < 1 else (inside, middle)
        if outside / inside < 1 + 1e-4:
            break
    return inside


def _pace(radius: Callable[[float], float]) -> float:
    """Return the slope of 1 - radius over eta h at 0, from two points, so that the curve's bend cancels."""
    near, far = ((1 - radius(slow)) / slow for slow in (SLOW / 2, SLOW))
    return 2 * near - far


def injected_noise(algorithm: Algorithm, network: Network) -> tuple[float, ...]:
    """Return, for each agent, the variance of all gradient noise that enters its state in one step, over its own.

    Gradients enter linearly: x_i gets -eta sum over k, s of c_ik,s g_k(t - s) at a step, and noise of different agents
    and steps is independent, so that the variances add up to sum c^2. For P-ASGD that is 1 + tau^2 sum_k w_ik^2.
    """
    still = linearise(algorithm, network, 1.0, SLOW, check=False)
    steep = linearise(algorithm, network, 1.0, 2 * SLOW, check=False)
    agents = network.num_agents
    squares = torch.zeros(agents, dtype=torch.float64)
    for age, matrix in still.matrices.items():
        slope = (steep.matrices[age] - matrix)[:agents, :agents] / SLOW  # what a gradient of age s adds
        squares += slope.square().sum(dim=1)
    return tuple(round(float(value), 6) for value in squares)
