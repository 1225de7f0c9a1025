"""What the bounds need of the rule and the network: the range of theta, and delta_2."""

import functools

import torch

from gossamer.algorithms import Algorithm, algorithm_class
from gossamer.algorithms.p_asgd import Predicting
from gossamer.network import Network, check_assumption_2

LONG = 10_000  # steps of a schedule that are looked at one by one
FAR = (10**5, 10**6, 10**8, 10**12)  # and some far out
ALMOST_ONE = 1 - 2**-53


@functools.lru_cache
def theta_range(algorithm: Algorithm, steps: int = LONG) -> tuple[float, float] | None:
    """Return the least and the largest theta that a rule may use; None for rules that the paper is not about."""
    if isinstance(algorithm, algorithm_class("c-asgd")):
        return 0.0, 0.0
    if not isinstance(algorithm, Predicting):
        return None
    if not isinstance(algorithm, algorithm_class("pc-asgd")):
        return 1.0, 1.0
    policy = getattr(algorithm, "policy", None)
    if policy is None:
        return 0.0, 1.0  # the criterion may choose either at any step
    chances = torch.tensor([0.0, ALMOST_ONE], dtype=torch.float64)
    values = torch.stack([policy.at(t, chances) for t in (*range(min(steps, LONG)), *(FAR if steps >= LONG else ()))])
    low, high = (round(float(value), 12) for value in (values.min(), values.max()))
    return low, high


def delta_2(network: Network, theta: tuple[float, float]) -> float:
    """Return the largest theta e_2(W) + (1 - theta) e_2(W~) over a range of theta.

    It is linear in theta, so that an end of the range has it. e_2 is the second largest absolute value, which is what
    the proof contracts by; under Assumption 2 (c) it is the second largest eigenvalue, as printed.
    """
    whole, clipped = check_assumption_2(network.W).slem, check_assumption_2(network.W_clip).slem
    return max(share * whole + (1 - share) * clipped for share in theta)
