"""SDM-ASGD against the slow truth of oracle_peers.py, and what its damping does to drift, noise and the rate."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gm
import oracle_peers as slow
from worlds import assert_same_path, few, many, worlds


@many
@given(worlds(), st.floats(0, 1), st.floats(0, 30), st.sampled_from([0.0, 0.9]))
def test_the_step_is_matched_differences_less_a_share_of_the_way_from_the_trend(world, damping, lag, momentum):
    truth = world.truth(slow.SdmAsgd(damping, lag), momentum=momentum)
    assert_same_path(world.path(gm.algorithm("sdm-asgd", damping=damping, lag=lag), momentum=momentum), truth)


@few
@given(worlds())
def test_without_damping_it_is_dm_asgd(world):
    path = world.path(gm.algorithm("sdm-asgd", damping=0), momentum=0.9)
    torch.testing.assert_close(path, world.path(gm.algorithm("dm-asgd"), momentum=0.9), rtol=0, atol=0)


@pytest.mark.parametrize("damping", [0.2, 0.5])
@pytest.mark.parametrize("tau", [1, 20])
def test_a_steady_drift_keeps_its_pace(tau, damping):
    """Damping against one smoothed path, which lags, would be a brake: 1 + psi L times slower."""
    slope = torch.tensor([1.0, -2.0], dtype=torch.float64).expand(8, 2)
    algorithm = gm.algorithm("sdm-asgd", damping=damping)
    start = torch.zeros(8, 2, dtype=torch.float64)
    path = gm.trajectory(algorithm, gm.network("paper-1", tau), lambda x, t: slope, start, lr=0.1, steps=1200)
    torch.testing.assert_close(path[-1] - path[-2], -0.1 * slope, rtol=1e-6, atol=0)


def variance_of_the_equations(network, algorithm, curvature, lr, momentum):
    """The mean over agents of E x^2 when every gradient is curvature x + noise of variance 1, from the z-transform."""
    tau, n = network.delay.largest, network.num_agents
    clip, late = network.W_clip.numpy(), network.W_late.numpy()
    kappa, b = 1 / (2 * (tau + 1)), 1 / (1 + algorithm.lag)
    total, count = 0.0, 4000
    for w in (np.arange(count) + 0.5) * np.pi / count:
        z = np.exp(1j * w)
        local = lr * z / (z - momentum)
        rest = 1 - b * z / (z - (1 - b))
        left = (z + local * curvature + algorithm.damping * rest**2) * np.eye(n) - clip
        left = left - kappa * z**-tau * (late - np.diag(late.sum(axis=1)))
        total += np.sum(np.abs(np.linalg.inv(left) * local) ** 2) / n
    return total / count


@pytest.mark.parametrize(("tau", "curvature"), [(5, 0.3), (5, 1.0), (20, 0.3), (20, 3.0)])
def test_noise_is_calmed_as_the_equations_say(tau, curvature):
    network, lr, momentum = gm.network("paper-1", tau, mixing="uniform"), 0.1, 0.9
    found, expected = {}, {}
    for damping in (0.0, 0.2):
        algorithm = gm.algorithm("sdm-asgd", damping=damping)
        chance = torch.Generator().manual_seed(0)

        def gradient(x, t, chance=chance):
            return curvature * x + torch.randn(x.shape, dtype=x.dtype, generator=chance)

        start = torch.zeros(8, 400, dtype=torch.float64)
        path = gm.trajectory(algorithm, network, gradient, start, lr=lr, momentum=momentum, steps=900)
        found[damping] = float(path[400:].square().mean())
        expected[damping] = variance_of_the_equations(network, algorithm, curvature, lr, momentum)
        assert found[damping] == pytest.approx(expected[damping], rel=0.05)
    assert found[0.2] < 0.8 * found[0.0]


@pytest.mark.parametrize(("damping", "lag", "momentum"), [(0.2, 10, 0.9), (0.2, 10, 0.0), (0.5, 2, 0.5)])
def test_the_largest_stable_rate_falls_a_little(damping, lag, momentum):
    """At z = -1 the equation (z - 1) + eta h z / (z - beta) + psi (1 - E)^2 has its root."""
    limit = (1 + momentum) * (2 - damping * (2 * lag / (1 + 2 * lag)) ** 2)
    algorithm = gm.algorithm("sdm-asgd", damping=damping, lag=lag)
    ends = []
    for share in (0.98, 1.02):
        start = torch.ones(1, 1, dtype=torch.float64)
        path = gm.trajectory(
            algorithm, "complete:1", lambda x, t: x, start, lr=share * limit, momentum=momentum, steps=1200
        )
        ends.append(float(path[-1].abs()))
    assert ends[0] < 1e-3 and ends[1] > 1e3
