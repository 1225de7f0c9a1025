"""SGP, DGA and DC-S3GD, which send running totals, against oracle_totals.py; what they share with tracking."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gm
import oracle_totals
from gossamer.algorithms.rivals.totals import push_weights
from oracle_totals import shares_of
from spies import calls, row_of
from totals import setting_of, under_way
from worlds import World, assert_same_path, few, some, worlds

FAMILY = tuple(oracle_totals.RULES)
pytestmark = pytest.mark.filterwarnings("ignore::gossamer.StabilityWarning")


# ---- all rules of the family


@pytest.mark.parametrize("name", FAMILY)
@some
@given(worlds())
def test_follows_its_equations(name, world):
    assert_same_path(world.path(gm.algorithm(name)), oracle_totals.RULES[name](setting_of(world)))


@pytest.mark.parametrize("name", FAMILY)
@few
@given(worlds(kinds=("scripted", "lossy")))
def test_steps_along_the_local_optimisers_direction(name, world):
    local = {"momentum": 0.8, "weight_decay": 0.05}
    path = world.path(gm.algorithm(name), **local)
    assert_same_path(path, oracle_totals.RULES[name](setting_of(world, **local)))


@pytest.mark.parametrize("name", FAMILY)
def test_a_schedule_scales_the_steps_of_its_time(name):
    world = World(n=5, d=3, num_steps=12, kind="scripted", largest=4)
    path = world.path(gm.algorithm(name), schedule="step:0.5")
    setting = setting_of(world, lr=lambda t: world.lr * (0.1 if t >= 6 else 1))
    assert_same_path(path, oracle_totals.RULES[name](setting))


@pytest.mark.parametrize("name", FAMILY)
@few
@given(worlds())
def test_one_agents_row_alone_gives_that_row_of_state_and_message(name, world):
    algorithm = gm.algorithm(name)
    for call in calls(algorithm, world):
        message = algorithm.send(call.own)
        for i in {0, world.n - 1}:
            own, *rest = row_of(call, i)
            update = algorithm.step(own, *rest)
            torch.testing.assert_close(update.x, call.update.x[i : i + 1], rtol=1e-11, atol=1e-11)
            for kept, everyone in ((update.state, call.update.state), (algorithm.send(own), message)):
                assert kept.keys() == everyone.keys()
                for part, value in kept.items():
                    torch.testing.assert_close(value, everyone[part][i : i + 1], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", FAMILY)
def test_nothing_kept_lies_where_the_engine_writes_the_next_gradient(name):
    """On a GPU the gradient of the next step is written over that of this one."""
    for call in calls(gm.algorithm(name), World(n=4, d=3, num_steps=4)):
        given_out = {call.own.g.untyped_storage().data_ptr(), call.own.v.untyped_storage().data_ptr()}
        kept = [call.update.x, *call.update.state.values(), *gm.algorithm(name).send(call.own).values()]
        assert given_out.isdisjoint(tensor.untyped_storage().data_ptr() for tensor in kept)


@pytest.mark.parametrize("name", FAMILY)
def test_gradients_at_the_mixed_point_are_refused(name):
    with pytest.raises(gm.UserError, match=f"gradient_at=mixed does not go with {name}.*use gradient_at=own"):
        gm.algorithm(name, gradient_at="mixed")


# ---- shares and mass


@some
@given(worlds())
def test_a_sender_splits_all_it_has_and_nothing_more(world):
    place = gm.Place(world.network, torch.arange(world.n), torch.ones(world.n))
    kept, shares = push_weights(place)[0], push_weights(place)[1].dense()
    assert kept.dtype == shares.dtype == torch.float64
    assert (kept > 0).all() and (shares >= 0).all()
    torch.testing.assert_close(kept[:, 0] + shares.sum(dim=0), torch.ones(world.n).double())
    torch.testing.assert_close(shares + torch.diag(kept[:, 0]), torch.from_numpy(shares_of(setting_of(world))))


def test_each_link_has_a_share_for_its_own_delay():
    delays = np.array([[0, 1, 3], [0, 0, 0], [2, 5, 0]])
    place = gm.Place(gm.network("complete:3", delays, clusters=None), torch.arange(3), torch.ones(3))
    off_diagonal = ~np.eye(3, dtype=bool)
    shares = push_weights(place)[1].dense().numpy()
    np.testing.assert_allclose(shares[off_diagonal], (1 / 3 / (1 + delays))[off_diagonal])
    rare = gm.Place(gm.network("complete:3", "geometric:0.5", clusters=None), torch.arange(3), torch.ones(3))
    np.testing.assert_allclose(push_weights(rare)[1].dense().numpy()[off_diagonal], 1 / 3 / 2)  # a mean delay of 1


@some
@given(worlds())
def test_sgp_loses_no_mass_whatever_is_late_or_lost(world):
    setting, algorithm = setting_of(world), gm.algorithm("sgp")
    expected, pushed, pushed_weight = setting.x0.sum(axis=0), [], []
    for call, (_, _, held, _) in zip(calls(algorithm, world), setting.messages(), strict=True):
        state = {name: value.numpy() for name, value in call.update.state.items()}
        pushed.append(state["pushed"])
        pushed_weight.append(state["pushed_weight"])
        expected = expected - world.lr * call.own.v.numpy().sum(axis=0)
        mass = state["y"].sum(axis=0) + under_way(setting, pushed, held)
        weight = state["omega"].sum() + under_way(setting, pushed_weight, held)
        np.testing.assert_allclose(mass, expected, rtol=0, atol=1e-10)
        np.testing.assert_allclose(weight, world.n, rtol=0, atol=1e-10)
        assert (state["omega"] > 0).all()


@some
@given(st.integers(3, 6), st.integers(0, 2**16))
def test_sgp_is_the_published_recursion_with_directed_push_weights(n, seed):
    """x_i <- sum_j p_ij (x_j - eta g_j(z_j)), w_i <- sum_j p_ij w_j, z = x / w; columns of P sum to one, rows do not.

    Links that are late one way only have smaller weights in that direction. What is under way arrives in order.
    """
    rng, smooth = np.random.default_rng(seed), World(n=n, d=3, num_steps=1, seed=seed).smooth
    tau = rng.integers(0, 5, (n, n)) * ~np.eye(n, dtype=bool)
    tau[0, 1], tau[1, 0] = 3, 0
    P = 1 / n / (1 + tau)
    np.fill_diagonal(P, 0)
    np.fill_diagonal(P, 1 - P.sum(axis=0))
    assert abs(P - P.T).max() > 0.1 and abs(P.sum(axis=1) - 1).max() > 0.01
    steps, lr = 30, 0.05
    path = gm.trajectory("sgp", gm.network(f"complete:{n}", tau), smooth.gradient, smooth.x0, lr=lr, steps=steps)
    x, w, sent = smooth.x0.copy(), np.ones((n, 1)), []
    for t in range(steps):
        sent.append((x - lr * smooth.gradient(x / w, t), w))
        x, w = np.zeros_like(x), np.zeros_like(w)
        for i in range(n):
            for j in range(n):
                if t >= tau[i, j]:
                    pushed, weight = sent[t - tau[i, j]]
                    x[i] += P[i, j] * pushed[j]
                    w[i] += P[i, j] * weight[j]
        np.testing.assert_allclose(path[t + 1], x / w, rtol=0, atol=1e-11)


def test_push_sum_finds_the_exact_mean_where_rows_do_not_sum_to_one():
    tau = np.array([[0, 4, 0, 0], [0, 0, 4, 0], [0, 0, 0, 4], [0, 0, 0, 0]])
    start = torch.tensor([[1.0], [-2.0], [5.0], [3.0]], dtype=torch.float64)
    path = gm.trajectory("sgp", gm.network("complete:4", tau), lambda x, t: 0 * x, start, steps=300)
    torch.testing.assert_close(path[-1], torch.full_like(start, 1.75), rtol=0, atol=1e-12)


@some
@given(worlds(kinds=("fixed",)).map(lambda world: dataclasses.replace(world, largest=0)))
def test_sgp_without_delay_descends_and_then_mixes(world):
    path, W = world.path(gm.algorithm("sgp")).numpy(), world.network.W.numpy()
    for t in range(world.num_steps):
        expected = W @ (path[t] - world.lr * world.smooth.gradient(path[t], t))
        np.testing.assert_allclose(path[t + 1], expected, rtol=0, atol=1e-12)


def test_sgps_mean_falls_by_the_mean_gradient_under_loss():
    net = gm.network("complete:4", "uniform:1,4", loss=0.3)
    slopes = torch.tensor([[4.0], [0.0], [0.0], [0.0]], dtype=torch.float64)
    path = gm.trajectory("sgp", net, lambda x, t: slopes, torch.zeros(4, 1).double(), lr=0.1, steps=300)
    pace = (path[100] - path[300]).mean() / 200
    assert float(pace) == pytest.approx(0.1, abs=0.005)


# ---- DGA


@some
@given(worlds(kinds=("fixed",), startups=("wait",), smallest=1))
def test_dga_replaces_the_own_direction_of_then_by_the_mean(world):
    n, tau, lr = world.n, world.largest, world.lr
    net = gm.network(f"complete:{n}", tau, clusters=None)
    v = []

    def gradient(x, t):
        v.append(world.smooth.gradient(x, t))
        return v[-1]

    path = gm.trajectory(gm.algorithm("dga"), net, gradient, world.smooth.x0, lr=lr, steps=tau + 12).numpy()
    for t in range(tau + 12):
        expected = path[t] - lr * v[t]
        if t == tau:  # the first messages: the starts are averaged with the steps
            expected = expected + path[0].mean(axis=0) - path[0]
        if t >= tau:
            expected = expected - lr * (v[t - tau].mean(axis=0) - v[t - tau])
        np.testing.assert_allclose(path[t + 1], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("delay", [0, 4])
def test_dga_lets_no_disagreement_grow_where_w_has_a_negative_eigenvalue(delay):
    net = gm.network("ring:4", delay)
    assert float(torch.linalg.eigvalsh(net.W)[0]) < -0.3
    odd = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]], dtype=torch.float64)  # its eigenvector
    path = gm.trajectory("dga", net, lambda x, t: x, odd, lr=0.1, steps=400)
    assert path[200:].abs().max() < 1


def test_dga_ends_apart_where_gradients_reach_only_some_agents():
    centres = torch.arange(8, dtype=torch.float64)[:, None]

    def spread(graph):
        path = gm.trajectory("dga", gm.network(graph, 2), lambda x, t: x - centres, [0.0], lr=0.05, steps=700)
        assert abs(float(path[-1].mean() - centres.mean())) < 1e-6
        return float((path[-1] - path[-1].mean()).norm())

    own_minima = float((centres - centres.mean()).norm())
    assert spread("complete:8") < 0.1 * own_minima < 0.9 * own_minima < spread("ring:8")


@pytest.mark.parametrize("reliable_delay", [0, 2])
def test_dga_compares_steps_of_the_same_time_inside_of_clusters_too(reliable_delay):
    """With equal gradients there is nothing to correct, however late the neighbours are."""
    net = gm.network("clusters:3,3", 4, reliable_delay=reliable_delay)
    path = gm.trajectory(
        "dga", net, lambda x, t: torch.ones_like(x) * (t + 1), torch.zeros(2).double(), lr=0.1, steps=9
    )
    expected = -0.1 * torch.arange(10).double().cumsum(0)
    torch.testing.assert_close(path, expected[:, None, None].expand_as(path), rtol=0, atol=1e-12)


# ---- DC-S3GD


@some
@given(
    st.integers(2, 6), st.integers(0, 2**16), st.sampled_from([(0.0, False), (0.9, False), (0.9, True)]), st.booleans()
)
def test_dc_s3gd_is_the_published_recursion_where_all_hear_all_one_step_late(n, seed, local, common):
    """D_i = mean(dw(t-1)) - dw_i(t-1), the compensated gradient inside the momentum, w_i += D_i + dw_i."""
    world, lr, lam0, steps = World(n=n, d=4, num_steps=1, seed=seed), 0.05, 0.2, 25
    start = np.tile(world.smooth.x0[0], (n, 1)) if common else world.smooth.x0
    rule, net = gm.algorithm("dc-s3gd", lam0=lam0), gm.network(f"complete:{n}", 0)
    momentum, nesterov = local
    told = {"lr": lr, "steps": steps, "momentum": momentum, "nesterov": nesterov}
    path = gm.trajectory(rule, net, world.smooth.gradient, start, **told).numpy()
    w, dw, m = start, start, np.zeros_like(start)  # different starts count as a step before the first
    for t in range(steps):
        D = dw.mean(axis=0) - dw
        g = world.smooth.gradient(w, t)
        bent = g * g * D
        lam = lam0 * np.linalg.norm(g, axis=1) / (np.linalg.norm(bent, axis=1) + 1e-12)
        compensated = g + (lam[:, None] * bent if t > 0 else 0)
        m = momentum * m + compensated
        dw = -lr * (compensated + momentum * m if nesterov else m)
        w = w + D + dw
        np.testing.assert_allclose(path[t + 1], w, rtol=0, atol=1e-12)


@some
@given(worlds(kinds=("fixed",), startups=("wait",)))
def test_dc_s3gd_without_compensation_is_dga_on_messages_one_step_later(world):
    tau, start = world.largest, world.smooth.x0[0]
    later = {"clusters": world._clusters, "reliable_delay": 1, **world.settings}
    path, dga = (
        gm.trajectory(rule, net, world.smooth.gradient, start, lr=world.lr, steps=world.num_steps, momentum=0.5)
        for rule, net in [("dc-s3gd/lam0=0", world.network), ("dga", gm.network(world._graph, tau + 1, **later))]
    )
    torch.testing.assert_close(path, dga, rtol=0, atol=1e-12)


def test_dc_s3gds_compensation_is_lam0_times_as_long_as_the_gradient():
    world = World(n=5, d=3, num_steps=12, largest=0)
    for call in calls(gm.algorithm("dc-s3gd", lam0=0.3), world):
        length = call.update.state["compensation"].norm(dim=1)
        expected = 0.3 * call.own.g.norm(dim=1) * (call.own.t > 0)
        torch.testing.assert_close(length, expected, rtol=1e-6, atol=1e-9)


def test_dc_s3gd_refuses_a_negative_compensation():
    with pytest.raises(gm.UserError, match="lam0 must be 0 or more"):
        gm.algorithm("dc-s3gd", lam0=-1)
