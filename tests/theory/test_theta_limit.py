"""The limit of theta: stable below it whatever the delay, unstable above it at some curvature."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gm
from gossamer.errors import UserError
from gossamer.state.local import LocalOptimizer
from gossamer.theory import stability
from gossamer.theory.estimate import theta_range
from gossamer.theory.linear import linearise
from gossamer.theory.reduced_past import spectral_radius
from gossamer.theory.stability import injected_noise

# Curvature times the effective rate eta / (1 - beta); the promise ends at 1.
LIMIT = math.sqrt(2)  # times auto
SCAN = (0.001, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.999)


def largest_radius(theta, tau, beta=0.0, network="complete:2", scan=SCAN, **options):
    """The largest spectral radius over the scan."""
    net = gm.network(network, tau, clusters="1,1" if network == "complete:2" else None)
    rule, local = gm.algorithm("pc-asgd", theta=theta, **options), LocalOptimizer(momentum=beta)
    return max(spectral_radius(linearise(rule, net, 1.0, k * (1 - beta), local, check=False)) for k in scan)


@given(st.floats(0.05, 1.0))
@settings(deadline=None, max_examples=3)
def test_the_limit_at_delay_1_in_closed_form(theta):
    """Two agents, a = theta / 2: z^2 - (1 - a - k) z -+ a (1 - k), by Jury stable exactly for k < 2 / (1 + a)."""
    net = gm.network("complete:2", 1, clusters="1,1")
    found = stability(gm.algorithm("pc-asgd", theta=theta), net, 0.1, 1.0)
    assert found.largest_stable_lr == pytest.approx(2 / (1 + theta / 2), rel=1e-3)


@given(st.integers(1, 40))
@settings(deadline=None, max_examples=5)
def test_auto_is_stable_up_to_a_rate_of_1_over_the_curvature_whatever_the_delay(tau):
    assert largest_radius("auto", tau) < 1
    assert largest_radius(f"auto:{LIMIT}", tau) < 1


@given(st.integers(2, 60), st.floats(0.1, 1.0))
@settings(deadline=None, max_examples=5)
def test_above_that_the_limit_of_the_curvature_is_2_over_1_plus_a_tau(tau, gain):
    """|1 - a - k| + a |1 - tau k| <= 1 for k up to 2 / (1 + a tau), if a tau <= 1; a = theta / 2."""
    theta = min(1.0, 2 * gain / tau)
    k = 2 / (1 + theta / 2 * tau)
    assert k >= 1 and largest_radius(theta, tau, scan=(0.999 * k,)) < 1


def test_curvatures_above_the_rate_can_be_unstable():
    assert largest_radius("auto", 60, scan=(1.2,)) > 1
    assert largest_radius("auto", 60, 0.9, scan=(4.0,)) > 1
    assert largest_radius("auto", 20, 0.9, scan=(8.0,)) > 1 > largest_radius("auto", 20, 0.9, scan=(8.0,), damping=0.2)
    # Nor has synchronous SGD a larger limit on the paper's network: agents of a cluster disagree by -eta h.
    for rule in ("sync", "pc-asgd"):
        radii = [
            spectral_radius(linearise(gm.algorithm(rule), gm.network("paper-1", 20), 1.0, k)) for k in (0.99, 1.01)
        ]
        assert radii[0] < 1 < radii[1]


@pytest.mark.parametrize("beta", [0.3, 0.5, 0.9])
@pytest.mark.parametrize("tau", [1, 5, 20, 60])
def test_auto_is_stable_with_a_momentum_up_to_an_effective_rate_of_1_over_the_curvature(tau, beta):
    assert largest_radius("auto", tau, beta) < 1
    assert largest_radius(f"auto:{LIMIT}", tau, beta) < 1


@pytest.mark.parametrize(("beta", "multiple"), [(0.0, 2.0), (0.5, 2.3), (0.9, 3.1)])
def test_above_the_limit_some_curvature_is_unstable(beta, multiple):
    assert largest_radius(f"auto:{multiple}", 60, beta) > 1


@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_the_papers_network_has_the_same_limit(beta):
    few = (0.01, 0.3, 0.999)
    assert largest_radius("auto", 20, beta, "paper-1", few) < 1
    assert largest_radius("auto:6", 20, beta, "paper-1", few) > 1


def test_a_theta_that_differs_between_links_is_analysed():
    net = gm.network("complete:3", [[0, 2, 5], [2, 0, 3], [5, 3, 0]])
    found = stability(gm.algorithm("pc-asgd"), net, 0.05, 1.0)
    assert found.stable and found.pace == pytest.approx(1, rel=1e-5)
    low, high = theta_range(gm.algorithm("pc-asgd"), net)
    assert (low, high) == pytest.approx((0.5**0.5 / (6 * net.late_radius), 0.5**0.5 / (3 * net.late_radius)))


@pytest.mark.parametrize("beta", [0.0, 0.9])
@pytest.mark.parametrize("tau", [5, 60])
def test_the_trend_is_stable_in_steep_directions_too(tau, beta):
    """Half of 1 / (rho (tau + 1)) up to 0.4 of the largest curvature that an agent alone goes down."""
    few = (1e-6, 0.01, 0.3, 1.0, 0.8 * (1 + beta) / (1 - beta))
    assert largest_radius("auto", tau, beta, scan=few, predictor="trend") < 1
    assert largest_radius("auto:5", tau, beta, scan=few, predictor="trend") > 1


@pytest.mark.parametrize(("beta", "lag"), [(0.0, 0.0), (0.9, 0.0), (0.9, 3.0), (0.97, 10.0)])
@pytest.mark.parametrize("tau", [5, 60])
def test_a_trend_of_a_short_lag_has_a_smaller_limit_with_a_momentum(tau, beta, lag):
    few = (0.001, 0.1, 0.5, 0.7, 0.85, 0.999)
    assert largest_radius("auto", tau, beta, scan=few, predictor="trend", lag=lag) < 1
    if beta:  # where the trend of a long lag would not be stable
        share = math.sqrt(1 - beta + ((1 - beta) * (1 + lag)) ** 2)
        radii = [largest_radius(f"auto:{1 / share}", 20, beta, scan=few, predictor="trend", lag=lag)]
        assert share < 1 < max(radii)


@given(st.floats(0.0, 0.97), st.floats(0.01, 0.99))
def test_the_trends_loop_gain_in_closed_form(beta, part):
    """max |D| / |z - 1 + eta H| = 1 / sqrt(1 - k / (1 + sqrt(beta))^2) where 1 + L = 1 / (1 - beta)."""
    import numpy as np

    k = part * min(4 * math.sqrt(beta), (1 + math.sqrt(beta)) ** 2)
    z = np.exp(1j * np.linspace(1e-6, np.pi, 100_001))
    gain = np.abs((1 - beta) * (z - 1) / ((z - 1) * (z - beta) + k * z)).max()
    assert gain == pytest.approx(1 / math.sqrt(1 - k / (1 + math.sqrt(beta)) ** 2), rel=1e-3)


@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_own_displacements_are_as_stable_as_dm_asgd(beta):
    net, local = gm.network("complete:2", 8, clusters="1,1"), LocalOptimizer(momentum=beta)
    both = (gm.algorithm("pc-asgd", predictor="own"), gm.algorithm("dm-asgd"))
    radii = [spectral_radius(linearise(rule, net, 0.1, 1.0, local, check=False)) for rule in both]
    assert radii[0] == pytest.approx(radii[1], abs=1e-9)


def test_the_noise_of_auto_does_not_grow_with_the_delay():
    """1 + (theta tau)^2 sum w^2 = 1 + (tau / (tau + 1))^2 sum w^2 / (2 rho^2)."""
    for tau in (5, 20):
        net = gm.network("paper-1", tau)
        expected = [1 + (tau / (tau + 1)) ** 2 * late / 30 for late in (5, 5, 5, 3, 3, 3, 3, 3)]
        assert injected_noise(gm.algorithm("pc-asgd"), net) == pytest.approx(expected, rel=1e-4)


def test_the_peak_of_the_local_step_is_what_the_momentum_costs():
    """|T| = |eta H / (z - 1 + eta H)| has its largest value 1 / sqrt(1 - beta) at eta h = 1 - beta."""
    import numpy as np

    z = np.exp(1j * np.linspace(1e-6, np.pi, 400_001))
    for beta in (0.3, 0.5, 0.9):
        peaks = []
        for share in (0.03, 0.1, 0.3, 0.6, 1.0):
            step = share * (1 - beta) * z / (z - beta)
            peaks.append(float(np.abs(step / (z - 1 + step)).max()))
        assert peaks == sorted(peaks) and peaks[-1] == pytest.approx(1 / math.sqrt(1 - beta), rel=1e-4)


@pytest.mark.parametrize("theta", ["kalman", "pv"])
def test_what_varies_from_step_to_step_is_still_refused(theta):
    with pytest.raises(UserError, match="has theta between 0 and"):
        stability(gm.algorithm("pc-asgd", theta=theta), gm.network("paper-1", 5), 0.1, 1.0)


def test_the_range_of_theta_follows_the_network():
    rule, net = gm.algorithm("pc-asgd"), gm.network("paper-1", 20)
    assert theta_range(rule) == (0.0, 1.0)
    assert theta_range(rule, net) == pytest.approx((0.5**0.5 / (21 * net.late_radius),) * 2)
    low, high = theta_range(rule, gm.network("paper-1", "uniform:2,9"), momentum=0.9)
    assert low < high <= math.sqrt(0.05) / (2 * net.late_radius)
    assert theta_range(gm.algorithm("pc-asgd", theta="kalman"), net)[0] == 0


def test_the_command_analyses_auto(command):
    setting = ("--network", "paper-1", "--delay", "20", "--algorithm", "pc-asgd", "--curvature", "1", "--json")
    assert command.well("stability", *setting, "--lr", "0.9").document["stable"] is True
    assert command.well("stability", *setting, "--lr", "0.9", "--theta", "0.3").document["stable"] is False
