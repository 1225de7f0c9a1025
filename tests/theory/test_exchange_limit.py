"""What no exchange of late messages can do: the disagreement keeps the noise that nobody can have heard of yet.

Two agents that hear each other tau steps late, gradients of curvature h with noise, a momentum. Noise of step t moves
the states from t + 1 on, is heard of at t + 1 + tau, and can be corrected in the state after that: tau + 1 states have
it in full. So the variance of the disagreement is at least the sum of the first tau + 1 squares of the response to one
noise, as in minimum variance control (Åström 1970).
"""

import numpy as np
import pytest
import torch

import gossamer as gm

LR = 0.1


def response(curvature, momentum, steps):
    """The way of one agent by itself after a gradient of 1, step by step."""
    x, direction, path = 0.0, 0.0, []
    for step in range(steps):
        direction = momentum * direction + curvature * x + (step == 0)
        x -= LR * direction
        path.append(x)
    return np.array(path)


def least_variance(curvature, momentum, tau):
    return float(np.sum(response(curvature, momentum, tau + 1) ** 2))


def simulated(algorithm, curvature, momentum, tau):
    """The variance of (x_1 - x_2) / sqrt(2), which has an agent's noise, over 800 coordinates and 300 steps."""
    chance = torch.Generator().manual_seed(0)

    def gradient(x, t):
        return curvature * x + torch.randn(x.shape, dtype=x.dtype, generator=chance)

    start, network = torch.zeros(2, 800, dtype=torch.float64), gm.network("clusters:1,1", tau)
    path = gm.trajectory(algorithm, network, gradient, start, lr=LR, momentum=momentum, steps=900)
    return float((path[600:, 0] - path[600:, 1]).square().mean()) / 2


@pytest.mark.parametrize("gain", ["damped", "undamped"])
@pytest.mark.parametrize(
    ("curvature", "momentum", "tau"), [(0.01, 0.9, 5), (0.1, 0.9, 5), (0.01, 0.9, 20), (1.0, 0.9, 20), (0.2, 0.0, 5)]
)
def test_matched_differences_stay_above_the_limit(curvature, momentum, tau, gain):
    found = simulated(gm.algorithm("dm-asgd", gain=gain), curvature, momentum, tau)
    assert found > 0.97 * least_variance(curvature, momentum, tau)  # chance makes a hundredth


def test_where_the_past_is_forgotten_before_it_is_heard_of_there_is_nothing_to_gain():
    alone = float(np.sum(response(1.0, 0.9, 2000) ** 2))
    assert least_variance(1.0, 0.9, tau=60) > 0.99 * alone
    assert simulated(gm.algorithm("c-asgd"), 1.0, 0.9, 60) == pytest.approx(alone, rel=0.03)


def test_damping_gets_below_it_as_it_changes_how_an_agent_goes_by_itself():
    curvature, momentum, tau = 1.0, 0.9, 20
    limit = least_variance(curvature, momentum, tau)
    assert simulated(gm.algorithm("sdm-asgd"), curvature, momentum, tau) < 0.5 * limit


@pytest.mark.parametrize("tau", [0, 3, 10])
def test_whoever_knows_the_curvature_reaches_the_limit(tau):
    """Plain SGD: predict the disagreement from what is known of it, and take the prediction away."""
    keep, steps = 1 - LR * 0.5, 4000
    chance = np.random.default_rng(0)
    e, corrections = np.zeros((steps, 50)), np.zeros((steps, 50))
    for t in range(tau, steps - 1):
        done = sum(keep ** (age - 1) * corrections[t - age] for age in range(1, tau + 1))
        corrections[t] = keep * (keep**tau * e[t - tau] - done)
        e[t + 1] = keep * e[t] - corrections[t] - LR * chance.standard_normal(50)
    assert np.mean(e[200:] ** 2) == pytest.approx(least_variance(0.5, 0.0, tau), rel=0.02)
