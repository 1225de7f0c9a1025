"""DSGT and R-FAST: what their trackers preserve, and what that is good for. Their equations: test_totals_rules.py."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gm
import oracle_totals
from spies import calls
from totals import setting_of, under_way
from worlds import World, algorithm_from, assert_same_path, some, worlds

pytestmark = pytest.mark.filterwarnings("ignore::gossamer.StabilityWarning")


@some
@given(worlds())
def test_dsgt_takes_the_gain_that_it_is_given(world):
    truth = oracle_totals.dsgt(setting_of(world), gain="critical")
    assert_same_path(world.path(gm.algorithm("dsgt", gain="critical")), truth)


@pytest.mark.parametrize("gain", ["fast", 0.0, -1, float("inf")])
def test_an_impossible_gain_is_refused(gain):
    with pytest.raises(gm.UserError, match="gain"):
        gm.algorithm("dsgt", gain=gain)


def test_dsgt_warns_at_dm_asgds_limit():
    algorithm, net = gm.algorithm("dsgt", gain=0.5), gm.network("clusters:3,5", 20)
    assert "dsgt's gain 0.5 reaches the stability limit" in algorithm.check(net)
    assert gm.algorithm("dsgt").check(net) is None


@pytest.mark.parametrize("text", ["dsgt", "r-fast/descends=whole"])
@some
@given(worlds(kinds=("fixed",)).map(lambda world: dataclasses.replace(world, largest=0)))
def test_without_delay_both_are_the_textbook_recursion(text, world):
    W, x, mixed, last = world.network.W.numpy(), world.smooth.x0, 0.0, 0.0
    path = world.path(algorithm_from(text)).numpy()
    for t in range(world.num_steps):
        v = world.smooth.gradient(x, t)
        y = mixed + v - last
        x, mixed, last = W @ (x - world.lr * y), W @ y, v
        np.testing.assert_allclose(path[t + 1], x, rtol=0, atol=1e-11)


@some
@given(worlds(kinds=("fixed",)).map(lambda world: dataclasses.replace(world, largest=0)))
def test_without_delay_r_fast_is_the_published_recursion(world):
    """v = x - gamma z; x = W v; z_half = z + what was pushed + grad(x) - grad(x before); z = a_ii z_half is kept."""
    W, x, gamma = world.network.W.numpy(), world.smooth.x0, world.lr
    z, pushed = world.smooth.gradient(x, 0), 0.0
    path = world.path(gm.algorithm("r-fast")).numpy()
    for t in range(world.num_steps):
        np.testing.assert_allclose(path[t], x, rtol=0, atol=1e-12)
        before, x = world.smooth.gradient(x, t), W @ (x - gamma * z)
        z_half = z + pushed + world.smooth.gradient(x, t + 1) - before
        z = np.diag(W)[:, None] * z_half
        pushed = (W - np.diag(np.diag(W))) @ z_half


@some
@given(worlds())
def test_r_fast_along_the_whole_tracker_follows_its_equations(world):
    truth = oracle_totals.r_fast(setting_of(world), descends="whole")
    assert_same_path(world.path(gm.algorithm("r-fast", descends="whole")), truth)


@some
@given(worlds(kinds=("fixed",), clip_weights="rebuilt"), st.sampled_from(["auto", "critical"]))
def test_dsgts_mean_tracker_is_the_mean_direction_when_ages_are_the_same_both_ways(world, gain):
    algorithm = gm.algorithm("dsgt", gain=gain)
    for call in calls(algorithm, world):
        y = algorithm.send(call.own)["y"]
        torch.testing.assert_close(y.mean(dim=0), call.own.v.mean(dim=0), rtol=0, atol=1e-10)


def tracker_error(world: World) -> float:
    algorithm = gm.algorithm("dsgt")
    errors = [(algorithm.send(call.own)["y"] - call.own.v).mean(dim=0).norm() for call in calls(algorithm, world)]
    return float(max(errors))


def test_loss_and_ages_that_differ_both_ways_break_dsgts_mean():
    assert tracker_error(World(n=5, d=3, num_steps=20, kind="fixed")) < 1e-12
    assert tracker_error(World(n=5, d=3, num_steps=20, kind="lossy")) > 1e-4
    assert tracker_error(World(n=5, d=3, num_steps=20, kind="matrix")) > 1e-4


@some
@given(worlds())
def test_r_fasts_trackers_and_what_is_under_way_are_the_newest_directions(world):
    """Trackers are the newest direction plus an offset, so that offsets and what is under way add up to nothing."""
    setting, algorithm, pushed = setting_of(world), gm.algorithm("r-fast"), []
    for call, (_, _, held, _) in zip(calls(algorithm, world), setting.messages(), strict=True):
        pushed.append(call.update.state["pushed"].numpy())
        v = call.own.v.numpy()
        kept = call.update.state["offset"].numpy() + v
        total = kept.sum(axis=0) + under_way(setting, pushed, held)
        np.testing.assert_allclose(total, v.sum(axis=0), rtol=0, atol=1e-10)


# ---- skewed data


def skewed(n: int):
    """Quadratics with centres and curvatures that differ: their gradient, and the minimum of the mean."""
    rng = np.random.default_rng(0)
    h = torch.from_numpy(rng.uniform(0.2, 1.8, (n, 3)))
    centre = torch.from_numpy(3 * rng.standard_normal((n, 3)))
    return (lambda x, t: h * (x - centre)), (h * centre).sum(dim=0) / h.sum(dim=0)


def error_of(text: str, net: gm.Network, steps: int = 700) -> float:
    gradient, minimum = skewed(net.num_agents)
    path = gm.trajectory(text, net, gradient, torch.zeros(3).double(), lr=0.1, steps=steps)
    return float((path[-1] - minimum).norm())


@pytest.mark.parametrize("graph", ["ring:8", "clusters:3,3"])
def test_tracking_finds_the_minimum_of_the_mean_where_d_psgd_is_drawn_aside(graph):
    net = gm.network(graph, 4)
    bias = error_of("sync", net)
    assert bias > 0.1
    assert error_of("dsgt", net) < 0.01 * bias
    assert error_of("r-fast", net) < 0.01 * bias


def test_under_loss_r_fast_still_finds_it_and_dsgt_does_not():
    net = gm.network("clusters:3,3", "uniform:1,4", loss=0.2)
    assert error_of("r-fast", net) < 1e-5
    assert error_of("dsgt", net) > 1e-3


@pytest.mark.parametrize("descends", ["kept", "whole"])
@pytest.mark.parametrize("tau", [1, 3])
def test_late_states_hold_r_fast_back_as_they_do_d_asgd_and_the_tracker_besides(tau, descends):
    """On a linear loss: 1 + tau b for the states, 1 + tau a for the trackers, a and b being late shares and weights.

    Along the kept part the share a is not descended along either.
    """
    net = gm.network("complete:4", tau, clusters=None)
    b = float(net.W_late.sum(dim=1).mean())
    rule, a = gm.algorithm("r-fast", descends=descends), b / (1 + tau)
    path = gm.trajectory(rule, net, lambda x, t: torch.ones_like(x), torch.zeros(1).double(), lr=0.1, steps=200)
    expected = 0.1 / ((1 + tau * b) * (1 + tau * a)) * (1 - a if descends == "kept" else 1)
    assert float((path[100] - path[200]).mean()) / 100 == pytest.approx(expected, rel=1e-4)
