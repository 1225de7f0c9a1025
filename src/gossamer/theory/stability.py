"""The spectral radius of a rule's linearised update: whether a setting can work, without training.

With y(t + 1) = sum_s A_s y(t - s) (linear.py) the stacked past z(t) = (y(t), y(t-1), …) obeys z(t + 1) = C z(t), C the
companion matrix. All disturbances die out if and only if all eigenvalues of C lie inside the unit circle. The largest
absolute eigenvalue is the factor by which the slowest disturbance shrinks, or the fastest grows, per step.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from gossamer.algorithms import Algorithm
from gossamer.errors import UserError
from gossamer.network import Network
from gossamer.run.machine import one_thread
from gossamer.state.local import LocalOptimizer
from gossamer.theory.linear import PLAIN, linearise, over_rates
from gossamer.theory.reduced_past import spectral_radius

SLOW = 1e-4  # eta h at which the pace is measured
RATES = tuple(2.0**power for power in range(-20, 5))  # times 1/h: the rates that are tried for the limits
BISECTIONS = 16


@dataclass(frozen=True)
class Stability:
    """The stability of a setting, from its linearised update.

    Attributes:
        stable: whether every disturbance dies out.
        spectral_radius: the factor by which the slowest disturbance shrinks, or the fastest grows, per step.
        half_life: steps after which the slowest disturbance has halved.
        largest_stable_lr: None if every rate tried is unstable, infinity if the largest is stable.
        smallest_stable_lr: above 0 if smaller rates are unstable.
        pace: progress along a small gradient, relative to synchronous training; None if unstable.
        noise: for each agent, the variance of the gradient noise per step, relative to its own noise.
    """

    stable: bool
    spectral_radius: float
    half_life: float | None
    largest_stable_lr: float | None
    smallest_stable_lr: float | None
    pace: float | None
    noise: tuple[float, ...] | None

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return asdict(self) | {"noise": None if self.noise is None else list(self.noise)}


@one_thread()
def stability(
    algorithm: Algorithm,
    network: Network,
    lr: float,
    curvature: float,
    local: LocalOptimizer = PLAIN,
) -> Stability:
    """Analyse a rule's update on quadratic losses.

    Args:
        algorithm: a rule that is linear and the same at each step; other rules raise UserError.
        network: with fixed delays.
        lr: the learning rate.
        curvature: the largest eigenvalue of the losses' Hessian.
        local: the local optimiser, SGD with or without momentum.
    """
    if not 0 < lr < math.inf:
        raise UserError(f"lr must lie above 0 and be finite, got {lr}; use for example 0.05")

    checked = linearise(algorithm, network, lr, curvature, local)
    at_rate = over_rates(algorithm, network, curvature, local)
    at_lr = spectral_radius(checked)
    smallest, largest = _limits(lambda rate: spectral_radius(at_rate(rate)), curvature)

    def slow_radius(slow: float) -> float:
        return spectral_radius(linearise(algorithm, network, lr, slow / lr, local, check=False))

    # If a rule evaluates gradients itself or keeps vectors, noise enters in other ways too.
    countable = not algorithm.needs and checked.starts is None
    return Stability(
        stable=at_lr < 1,
        spectral_radius=at_lr,
        half_life=math.log(0.5) / math.log(at_lr) if 0 < at_lr < 1 else None,
        largest_stable_lr=largest,
        smallest_stable_lr=smallest,
        pace=_pace(slow_radius),
        noise=injected_noise(algorithm, network) if countable else None,
    )


def _limits(radius: Callable[[float], float], curvature: float) -> tuple[float | None, float | None]:
    """Return the smallest and the largest stable rate: a scan over 24 octaves, then bisection at both ends."""
    rates = [rate / curvature for rate in RATES]
    stable = [radius(rate) < 1 for rate in rates]
    if not any(stable):
        return None, None
    last = len(stable) - 1 - stable[::-1].index(True)
    largest = math.inf if last == len(rates) - 1 else _edge(radius, rates[last], rates[last + 1])
    first = last
    while first and stable[first - 1]:
        first -= 1
    return (_edge(radius, rates[first], rates[first - 1]) if first else 0.0), largest


def _edge(radius: Callable[[float], float], inside: float, outside: float) -> float:
    """Return the limit of stability between a stable and an unstable rate, by bisection."""
    for _ in range(BISECTIONS):
        middle = math.sqrt(inside * outside)
        inside, outside = (middle, outside) if radius(middle) < 1 else (inside, middle)
    return inside


def _pace(radius: Callable[[float], float]) -> float | None:
    """Return the slope of 1 - radius over eta h at 0; two points cancel the second-order term."""
    near, far = ((1 - radius(slow)) / slow for slow in (SLOW / 2, SLOW))
    return 2 * near - far if near > 0 else None


def injected_noise(algorithm: Algorithm, network: Network) -> tuple[float, ...]:
    """Return, for each agent, the variance of the gradient noise that enters its state per step, relative to its own.

    Gradients enter linearly: a step adds -eta sum over k, s of c_ik,s g_k(t - s) to x_i. Noise of different agents and
    steps is independent, so the variance is sum c^2. For P-ASGD that is 1 + tau^2 sum_k w_ik^2.
    """
    still = linearise(algorithm, network, 1.0, SLOW, check=False)
    steep = linearise(algorithm, network, 1.0, 2 * SLOW, check=False)
    agents = network.num_agents
    squares = torch.zeros(agents, dtype=torch.float64)
    for age, matrix in still.matrices.items():
        slope = (steep.matrices[age] - matrix)[:agents, :agents] / SLOW  # the coefficients of gradients of age s
        squares += slope.square().sum(dim=1)
    return tuple(round(float(value), 6) for value in squares)
