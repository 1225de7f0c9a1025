"""What can be solved by hand: the pace of each rule, and where it stops being stable."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings

import gossamer as gm
from gossamer.algorithms.matched import largest_eigenvalue, stability_limit
from worlds import worlds

PAPER = ["paper-1", "paper-2", "paper-3"]
DELAYS = [5, 20, 60]
LR = 0.1

on_the_papers_networks = pytest.mark.parametrize("spec", PAPER)


def slopes(net, equal: bool):
    """The constant gradients of linear losses, one number an agent."""
    n = net.num_agents
    return torch.ones(n, 1).double() if equal else torch.linspace(0.5, 2.5, n).double()[:, None]


def pace(algorithm, net, g, steps):
    """How far the mean of the agents falls in one step, over the last third of a run on linear losses."""
    x0 = torch.zeros(net.num_agents, 1, dtype=torch.float64)
    mean = gm.trajectory(algorithm, net, lambda x, t: g, x0, lr=LR, steps=steps).mean(dim=1)[:, 0]
    window = steps // 3
    return float(mean[-1 - window] - mean[-1]) / window


@on_the_papers_networks
@pytest.mark.parametrize("tau", [2, 5])
def test_d_asgd_is_slower_by_one_plus_tau_times_the_late_weight(spec, tau):
    net = gm.network(spec, tau)
    b = float(net.W_late.sum(dim=1).mean())
    g = slopes(net, equal=False)
    expected = LR * float(g.mean()) / (1 + tau * b)
    assert pace(gm.algorithm("d-asgd"), net, g, 120 * tau) == pytest.approx(expected, rel=1e-3)


@on_the_papers_networks
@pytest.mark.parametrize("tau", DELAYS)
def test_d_asgd_with_what_is_under_way_falls_at_the_slow_pace_from_the_first_late_message_on(spec, tau):
    """Long delays ring for long. The mean over agents and messages under way, b_k each, does not ring at all."""
    net = gm.network(spec, tau)
    b, g = net.W_late.sum(dim=1), slopes(net, equal=False)
    x0 = torch.from_numpy(np.random.default_rng(0).standard_normal((net.num_agents, 1)))
    path = gm.trajectory(gm.algorithm("d-asgd"), net, lambda x, t: g, x0, lr=LR, steps=4 * tau)[:, :, 0]
    under_way = path.unfold(0, tau, 1).sum(dim=2)  # over the tau states before each step from tau on
    mean = (path[tau:].sum(dim=1) + under_way[: len(path) - tau] @ b) / (net.num_agents + tau * b.sum())
    expected = LR * float(g.mean()) / (1 + tau * float(b.mean()))
    torch.testing.assert_close(mean[:-1] - mean[1:], torch.full_like(mean[1:], expected), rtol=1e-9, atol=0)


@on_the_papers_networks
@pytest.mark.parametrize("tau", DELAYS)
def test_p_asgd_restores_the_pace(spec, tau):
    net = gm.network(spec, tau)
    g = slopes(net, equal=True)
    assert pace(gm.algorithm("p-asgd", lam=0), net, g, 6 * tau) == pytest.approx(LR, rel=1e-9)


@on_the_papers_networks
def test_p_asgd_gives_the_gradients_of_late_senders_more_weight(spec):
    """Agent k counts 1 + tau b_k times: once for itself, tau times in what others make of its message."""
    tau = 5
    net = gm.network(spec, tau)
    g = slopes(net, equal=False)
    weight = 1 + tau * net.W_late.sum(dim=0)
    expected = LR * float((weight @ g).sum() / weight.sum())
    assert pace(gm.algorithm("p-asgd", lam=0), net, g, 30 * tau) == pytest.approx(expected, rel=1e-3)


@on_the_papers_networks
@pytest.mark.parametrize("tau", [5, 20])
@pytest.mark.parametrize("name", ["sync", "c-asgd", "dm-asgd"])
def test_matching_or_clipping_or_waiting_keeps_the_pace_at_every_step(name, spec, tau):
    net = gm.network(spec, tau)
    g = slopes(net, equal=False)
    x0 = torch.from_numpy(np.random.default_rng(0).standard_normal((net.num_agents, 1)))
    mean = gm.trajectory(gm.algorithm(name), net, lambda x, t: g, x0, lr=LR, steps=4 * tau).mean(dim=1)[:, 0]
    expected = float(x0.mean()) - LR * float(g.mean()) * torch.arange(4 * tau + 1).double()
    torch.testing.assert_close(mean, expected, rtol=0, atol=1e-11)


# ---- DM-ASGD's disagreement: e(t+1) = e(t) - a e(t - tau)


def disagreement(tau, gain, steps):
    """The difference of the means of paper-1's two clusters, without gradients."""
    net = gm.network("paper-1", tau)
    x0 = torch.from_numpy(np.random.default_rng(tau).standard_normal((8, 1)))
    path = gm.trajectory(gm.algorithm("dm-asgd", gain=gain), net, lambda x, t: 0 * x, x0, steps=steps)
    return (path[:, :3].mean(dim=1) - path[:, 3:].mean(dim=1))[:, 0].numpy()


def dominant_root(tau, a):
    """The largest root of z^(tau+1) - z^tau + a, with its imaginary part positive."""
    roots = np.roots([1, -1, *[0] * (tau - 1), a])
    root = roots[np.argmax(np.abs(roots))]
    return complex(root.real, abs(root.imag))


@pytest.mark.parametrize("tau", [2, 5, 12])
def test_slow_gains_let_the_disagreement_decay_at_the_real_root(tau):
    gain = 0.5 / (np.e * (tau + 0.5))
    e = disagreement(tau, gain, 30 * tau)
    root = dominant_root(tau, gain * largest_eigenvalue(gm.network("paper-1", tau)))
    assert root.imag == 0
    assert e[-1] / e[-2] == pytest.approx(root.real, rel=1e-6)


@pytest.mark.parametrize("tau", [2, 5, 12])
@pytest.mark.parametrize("gain", ["auto", "faster"])
def test_fast_gains_let_the_disagreement_oscillate_at_the_complex_root(tau, gain):
    kappa = 1 / (tau + 1) if gain == "auto" else 1.2 / (tau + 1)
    e = disagreement(tau, gain if gain == "auto" else kappa, 50 * tau)[-3 * tau :]
    root = dominant_root(tau, kappa * largest_eigenvalue(gm.network("paper-1", tau)))
    assert root.imag > 0
    # A decaying oscillation obeys e(t+2) = 2 Re(z) e(t+1) - |z|^2 e(t).
    twice_real, minus_square = np.linalg.lstsq(np.stack([e[1:-1], e[:-2]], axis=1), e[2:], rcond=None)[0]
    assert twice_real == pytest.approx(2 * root.real, rel=1e-4)
    assert -minus_square == pytest.approx(abs(root) ** 2, rel=1e-4)


@on_the_papers_networks
@pytest.mark.parametrize("tau", [1, 4])
def test_dm_asgd_is_stable_just_below_its_limit_and_unstable_just_above(spec, tau):
    net = gm.network(spec, tau)
    limit = stability_limit(tau, largest_eigenvalue(net))
    x0 = torch.from_numpy(np.random.default_rng(0).standard_normal((net.num_agents, 1)))

    def growth(gain):
        algorithm = gm.algorithm("dm-asgd", gain=gain)
        steps = 210 * tau
        path = gm.trajectory(algorithm, net, lambda x, t: 0 * x, x0, steps=steps)[:, :, 0]
        spread = (path - path.mean(dim=1, keepdim=True)).norm(dim=1)
        third = steps // 3
        return float(spread[-third:].max() / spread[third : 2 * third].max())

    assert growth(0.98 * limit) < 0.7
    with pytest.warns(gm.StabilityWarning, match="stability limit"):
        assert growth(1.02 * limit) > 1.5


@on_the_papers_networks
@pytest.mark.parametrize("gain", ["auto", "undamped", "damped", "critical"])
def test_the_named_gains_are_below_the_limit_for_every_delay(spec, gain):
    algorithm = gm.algorithm("dm-asgd", gain=gain)
    assert all(algorithm.check(gm.network(spec, tau)) is None for tau in (0, 1, 2, 5, 20, 60, 500))


def test_without_late_links_there_is_no_limit():
    net = gm.network("clusters:4", 5)
    assert largest_eigenvalue(net) == 0 and stability_limit(5, 0.0) == np.inf
    assert gm.algorithm("dm-asgd", gain=1e6).check(net) is None


# ---- P-ASGD on a quadratic


@on_the_papers_networks
@pytest.mark.parametrize("tau", [10, 25])
def test_p_asgd_is_stable_while_eta_tau_h_is_well_below_two_and_not_well_above(spec, tau):
    net = gm.network(spec, tau)
    x0 = torch.from_numpy(np.random.default_rng(0).standard_normal((net.num_agents, 1)))

    def growth(eta_tau_h):
        path = gm.trajectory(gm.algorithm("p-asgd", lam=0), net, lambda x, t: x, x0, lr=eta_tau_h / tau, steps=30 * tau)
        return float(path[-tau:].abs().max() / x0.abs().max())

    assert growth(1.6) < 1e-2
    assert growth(4.0) > 1e2


# ---- the ends of the family


@settings(deadline=None, max_examples=20)
@given(worlds())
def test_pc_asgd_ends_in_p_asgd_and_c_asgd_to_the_last_bit(world):
    assert torch.equal(world.path(gm.algorithm("pc-asgd", theta=1)), world.path(gm.algorithm("p-asgd")))
    assert torch.equal(world.path(gm.algorithm("pc-asgd", theta=0)), world.path(gm.algorithm("c-asgd")))


@settings(deadline=None, max_examples=20)
@given(worlds(kinds=("fixed",), startups=("full",), smallest=1))
def test_predicting_without_compensation_is_d_asgd_where_every_agent_hears_late(world):
    world = replace(world, num_clusters=None)
    p = world.path(gm.algorithm("p-asgd", horizon="none"))
    torch.testing.assert_close(p, world.path(gm.algorithm("d-asgd")), rtol=1e-12, atol=1e-12)


def test_late_links_inside_a_cluster_count_for_the_stability_of_dm_asgd():
    # A matrix describes every link itself, so these are late although one cluster holds all agents.
    net = gm.network("complete:4", torch.full((4, 4), 5), clusters=[4])
    assert gm.algorithm("dm-asgd", gain=0.9).check(net) is not None
    assert gm.algorithm("dm-asgd").check(net) is None


def test_the_curvature_term_diverges_where_there_is_no_curvature():
    # lam g*g stands for a Hessian that is 0 here; with a large gradient and a long delay it is all error.
    net, x0 = gm.network("paper-1", 20), torch.zeros(8, 1, dtype=torch.float64)
    ends = {
        lam: gm.trajectory(gm.algorithm("p-asgd", lam=lam), net, lambda x, t: 2 + 0 * x, x0, lr=0.01, steps=600)
        for lam in (0.0, 1.0)
    }
    assert ends[0.0][-1].abs().max() < 13  # 600 steps of 0.02
    assert not ends[1.0][-1].abs().max() < 1e3  # and growing


def test_a_trajectory_takes_texts_and_plain_lists_as_float64():
    path = gm.trajectory("dm-asgd/gain=critical", "ring:4", lambda x, t: x, [1.0, -1.0], lr=0.5, steps=3)
    assert path.dtype == torch.float64 and path.shape == (4, 4, 2)
    assert torch.allclose(path[:, :, 0], 0.5 ** torch.arange(4.0, dtype=torch.float64)[:, None].expand(4, 4))
