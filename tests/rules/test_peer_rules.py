"""Peers that average: AD-PSGD, local SGD, SWIFT, FedDelAvg and DiLoCo against the slow truth of oracle_peers.py."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gm
import oracle_peers as slow
from gossamer.algorithms.rivals.ad_psgd import matching
from gossamer.algorithms.rivals.swift import coefficients
from spies import calls, row_of, simulation
from worlds import World, algorithm_from, assert_same_path, few, noise_of, some, worlds

always = settings(deadline=None, max_examples=15)


def full(network, value):
    """The same period on all links."""
    return np.full(network.links.shape, value)


# ---- local SGD


# Lossy worlds are told by what arrives, and where messages are rare that is another question: test_arrivals.py asks it.
KNOWN = ("fixed", "matrix", "scripted")


@always
@given(worlds(kinds=KNOWN), st.integers(1, 9), st.sampled_from(["delta", "average"]))
def test_local_sgd_merges_what_arrives_once(world, every, merge):
    delays = slow.sent_at(lambda t: world.delays[t], full(world.network, every))
    truth = world.truth(slow.LocalSgd(every, merge), delays=delays)
    assert_same_path(world.path(gm.algorithm("local-sgd", every=every, merge=merge)), truth)


@few
@given(worlds(kinds=("fixed",)), st.integers(1, 6), st.sampled_from(["delta", "average"]))
def test_local_sgd_without_delay_averages_exactly_every_h_steps(world, every, merge):
    """As published: alone in between."""
    world = dataclasses.replace(world, largest=0)
    path = world.path(gm.algorithm("local-sgd", every=every, merge=merge))
    W, x = world.network.W.numpy(), world.smooth.x0
    for t in range(world.num_steps):
        mixed = W @ x if t % every == 0 else x
        x = mixed - world.lr * world.smooth.gradient(x, t)
        np.testing.assert_allclose(path[t + 1].numpy(), x, rtol=0, atol=1e-12)


@few
@given(st.integers(2, 6), st.integers(0, 2**16), st.data())
def test_local_sgd_overlaps_the_average_with_the_steps_that_follow(n, seed, data):
    """x + B(s) - b(s) when the average of step s arrives, less than H steps later."""
    every = data.draw(st.integers(2, 7))
    tau = data.draw(st.integers(1, every - 1))
    world = World(n=n, d=3, num_steps=4 * every, seed=seed)
    net = gm.network(f"complete:{n}", tau)
    path = gm.trajectory(f"local-sgd/every={every}", net, world.smooth.gradient, world.smooth.x0, lr=0.1, steps=30)
    x, sent = world.smooth.x0, {}
    for t in range(30):
        if t % every == 0:
            sent[t + tau] = x
        merged = x + (sent[t].mean(axis=0) - sent[t] if t in sent else 0)
        x = merged - 0.1 * world.smooth.gradient(x, t)
        np.testing.assert_allclose(path[t + 1].numpy(), x, rtol=0, atol=1e-12)


@few
@given(worlds(kinds=("fixed",), startups=("wait",), smallest=1))
def test_local_sgd_at_every_step_is_dm_asgd_without_clusters(world):
    world = dataclasses.replace(world, num_clusters=None)
    path = world.path(gm.algorithm("local-sgd", every=1))
    other = world.path(gm.algorithm("dm-asgd", gain="undamped"))
    torch.testing.assert_close(path, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("every", "delay"), [(8, 20), (8, 60), (2, 20), (1, 9)])
@pytest.mark.parametrize("graph", ["complete:6", "ring:5", "clusters:3,3"])
def test_local_sgd_lets_no_disagreement_grow_however_long_the_delay(every, delay, graph):
    net = gm.network(graph, delay)
    x0 = np.random.default_rng(0).standard_normal((net.num_agents, 2))
    path = gm.trajectory(f"local-sgd/every={every}", net, lambda x, t: 0 * x, x0, steps=1500)
    assert (path[-1] - path[-1].mean(dim=0)).norm() < 0.02 * (path[0] - path[0].mean(dim=0)).norm()


@few
@given(worlds(kinds=("fixed", "matrix", "lossy")), st.sampled_from([2, 4, 8]))
def test_local_sgd_sends_so_many_times_less(world, every):
    def sent(algorithm):
        run = simulation(algorithm, world)
        return sum(run.step().sent for _ in range(16))

    assert torch.equal(every * sent(gm.algorithm("local-sgd", every=every)), sent(gm.algorithm("d-asgd")))


# ---- SWIFT


@always
@given(worlds(), st.integers(1, 4))
def test_swift_weighs_what_it_holds_by_influence(world, every):
    share = np.random.default_rng(world.seed).uniform(0.2, 3.0, world.n)
    run = simulation(gm.algorithm("swift", every=every), world, share=torch.from_numpy(share))
    path = [run.x]
    for _ in range(world.num_steps):
        run.step()
        path.append(run.x)
    c = slow.swift_coefficients(world.network.links.numpy())
    truth = world.truth(partial(slow.swift, every=every, influence=share, c=c))
    assert_same_path(torch.stack(path), truth)


@some
@given(worlds())
def test_swifts_coefficients_are_symmetric_and_leave_each_agent_a_part(world):
    c, links = coefficients(world.network).dense(), world.network.links
    assert torch.equal(c, c.T) and torch.equal(c > 0, links)
    assert (c.sum(dim=1) < 1).all()


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ("complete:4", {(0, 1): 1 / 4}),
        ("ring:5", {(0, 1): 1 / 3}),
        ("star:4", {(0, 1): 1 / 4}),
        ("path:4", {(1, 2): 1 / 3, (0, 1): 1 / 3}),
    ],
)
def test_swifts_coefficients_of_graphs_by_hand(graph, expected):
    c = coefficients(gm.network(graph)).dense()
    assert {link: float(c[link]) for link in expected} == pytest.approx(expected)


@few
@given(worlds(kinds=("fixed",)), st.integers(1, 3))
def test_swift_without_delay_conserves_the_mean_weighted_by_data(world, every):
    """As published: p_i q_ij = p_j q_ji, so that the weighted mean moves by weighted gradients alone."""
    world = dataclasses.replace(world, largest=0)
    p = np.random.default_rng(world.seed).uniform(0.2, 3.0, world.n)
    for call in calls(gm.algorithm("swift", every=every), world, share=torch.from_numpy(p)):
        moved = p @ (call.update.x - call.own.x).numpy()
        np.testing.assert_allclose(moved, -world.lr * p @ call.own.g.numpy(), rtol=0, atol=1e-12)


@few
@given(worlds())
def test_swift_with_equal_influences_at_every_step_is_d_asgd_on_complete_graphs(world):
    """Once all have been heard: a neighbour that has sent nothing leaves its weight with the agent."""
    world = dataclasses.replace(world, density=1.0, settings=world.settings | {"lazy": False, "startup": "min"})
    path = world.path(gm.algorithm("swift", every=1))
    if all((world.delays[t][world.network.links.numpy()] >= 0).all() for t in range(world.num_steps)):
        torch.testing.assert_close(path, world.path(gm.algorithm("d-asgd")), rtol=1e-11, atol=1e-11)


def test_swift_averages_younger_models_than_local_sgd_and_sends_more():
    world = World(n=4, d=3, num_steps=20, largest=3)
    ages, sent = {}, {}
    for name in ("swift", "local-sgd"):
        run = simulation(gm.algorithm(name, every=8), world)
        reports = [run.step() for _ in range(world.num_steps)]
        ages[name], sent[name] = reports[16].ages.max(), sum(report.sent.sum() for report in reports)
    assert ages["swift"] == 3 and ages["local-sgd"] == 8
    assert sent["swift"] > 6 * sent["local-sgd"]


# ---- FedDelAvg


@always
@given(worlds(), st.just("auto") | st.floats(0, 1), st.integers(1, 4))
def test_feddelavg_gives_the_late_mean_its_weight_at_synchronisations(world, alpha, every):
    truth = world.truth(partial(slow.feddelavg, alpha=alpha, every=every))
    assert_same_path(world.path(gm.algorithm("feddelavg", alpha=alpha, every=every)), truth)


@few
@given(st.integers(2, 6), st.integers(0, 2**16), st.integers(1, 5), st.integers(2, 6), st.floats(0, 1))
def test_feddelavg_is_as_published_where_all_hear_all_with_one_delay(n, seed, delay, every, alpha):
    """w = alpha w + (1 - alpha) wbar(t - D) at every H-th step; local steps in between."""
    world, net = World(n=n, d=3, num_steps=1, seed=seed), gm.network(f"complete:{n}", delay)
    rule = gm.algorithm("feddelavg", alpha=alpha, every=every)
    path = gm.trajectory(rule, net, world.smooth.gradient, world.smooth.x0, lr=0.1, steps=20).numpy()
    w = [world.smooth.x0]
    for t in range(20):
        synchronises = t % every == 0 and t >= delay
        mixed = alpha * w[t] + (1 - alpha) * w[t - delay].mean(axis=0) if synchronises else w[t]
        w.append(mixed - 0.1 * world.smooth.gradient(w[t], t))
        np.testing.assert_allclose(path[t + 1], w[-1], rtol=0, atol=1e-12)


@few
@given(worlds())
def test_feddelavg_that_trusts_nothing_late_is_c_asgd(world):
    path = world.path(gm.algorithm("feddelavg", alpha=1, every=1))
    torch.testing.assert_close(path, world.path(gm.algorithm("c-asgd")), rtol=1e-12, atol=1e-12)


# ---- AD-PSGD


def reliable_links(world):
    """Links without delay and loss, in both directions."""
    net = world.network
    steps = range(world.num_steps)
    if world.kind == "scripted":
        return np.zeros((world.n, world.n), dtype=bool)
    current = net.links.numpy() & np.all([world.delays[t] == 0 for t in steps], axis=0)
    if world.kind == "lossy":
        current = net.spared.numpy()
    return current & current.T


@always
@given(worlds(), st.integers(0, 6))
def test_ad_psgd_exchanges_half_of_a_matched_difference(world, steps):
    links, noise = world.network.links.numpy(), lambda t: noise_of(world.seed, t, world.n)
    losses = {0.0: 0, 0.4: 16}[world.network.loss]  # 0.4^16 < 1e-6
    auto = world.network.delay.largest + losses + 1
    if (steps or auto) == 1:
        steps = 2  # in a round of one step the partner's turn may be yet to come
    rule = slow.AdPsgd(links, reliable_links(world), noise, steps or auto)
    assert_same_path(world.path(gm.algorithm("ad-psgd", exchange_steps=steps)), world.truth(rule))


@always
@given(worlds(), st.sampled_from([None, "uniform:0,4", "geometric:0.6", "gilbert:0.2,0.5,3"]), st.integers(0, 3))
def test_ad_psgds_mean_moves_by_gradients_alone(world, delay, reliable_delay):
    """On any graph, whatever is late, and under the losses of these runs."""
    network = world.network
    if delay is not None:
        loss, more = network.loss, {"reliable_delay": reliable_delay, **world.settings}
        network = gm.network(world._graph, delay, clusters=world._clusters, loss=loss, **more)
    means = []

    def gradient(x, t):
        g = world.smooth.gradient(x, t)
        means.append(g.mean(axis=0))
        return g

    steps = world.num_steps if delay is None else 60  # a world's own delays end with it
    path = gm.trajectory("ad-psgd", network, gradient, world.smooth.x0, lr=0.1, steps=steps, seed=world.seed)
    expected = world.smooth.x0.mean(axis=0) - 0.1 * np.cumsum(means, axis=0)
    np.testing.assert_allclose(path[1:].mean(dim=1).numpy(), expected, rtol=0, atol=1e-12)


@few
@given(st.integers(2, 7), st.integers(0, 2**16))
def test_ad_psgd_without_delay_is_pairwise_averaging_as_published(n, seed):
    """x_i = x_j = (x_i + x_j) / 2, then -eta g at the model before averaging."""
    world, net = World(n=n, d=3, num_steps=1, seed=seed), gm.network(f"complete:{n}", 0)
    path = gm.trajectory("ad-psgd", net, world.smooth.gradient, world.smooth.x0, lr=0.1, steps=15, seed=seed).numpy()
    for t in range(15):
        x = path[t].copy()
        for i, k in slow.greedy_pairs(net.links.numpy(), noise_of(seed, t, n)[1]).items():
            x[i] = (path[t][i] + path[t][k]) / 2
        np.testing.assert_allclose(path[t + 1], x - 0.1 * world.smooth.gradient(path[t], t), rtol=0, atol=1e-12)


@pytest.mark.parametrize("graph", ["clusters:3,3", "ring:5", "complete:6"])
@pytest.mark.parametrize("delay", [1, 5, "uniform:0,6"])
def test_ad_psgd_brings_agents_together_over_late_links(graph, delay):
    net = gm.network(graph, delay)
    x0 = np.random.default_rng(0).standard_normal((net.num_agents, 3))
    path = gm.trajectory("ad-psgd", net, lambda x, t: 0 * x, x0, steps=400)
    assert path[-1].std(dim=0).max() < 1e-3 * path[0].std(dim=0).min()


@always
@given(worlds())
def test_one_sided_ad_psgd_averages_with_one_peer(world):
    links = world.network.links.numpy()
    rule = slow.OneSidedAdPsgd(links, reliable_links(world), lambda t: noise_of(world.seed, t, world.n))
    assert_same_path(world.path(gm.algorithm("ad-psgd", exchange="one-sided")), world.truth(rule))


@some
@given(st.floats(0, 1, exclude_max=True), st.sampled_from(["complete:6", "ring:7", "path:5", "clusters:4,3"]))
def test_a_matching_pairs_each_agent_once_and_leaves_no_link_to_add(chance, graph):
    net = gm.network(graph, 3) if graph.startswith("clusters") else gm.network(graph, 0)
    usable = net.spared if graph.startswith("clusters") else net.links
    paired = matching(net, chance).dense()
    assert torch.equal(paired, paired.T) and paired.sum(dim=1).max() == 1
    assert not (paired & ~usable).any()
    free = ~paired.any(dim=1)
    assert not (usable & free[:, None] & free[None, :]).any()


@pytest.mark.parametrize("delay", [0, 2])
def test_a_link_that_may_lose_messages_is_in_no_matching(delay):
    net = gm.network("complete:6", delay, clusters="3,3", loss=0.3)
    paired = sum(matching(net, chance / 20).dense().int() for chance in range(20)) > 0
    assert torch.equal(paired, net.spared)


def test_without_late_links_pairs_conserve_the_mean():
    net = gm.network("complete:6", 0)
    x0 = np.random.default_rng(0).standard_normal((6, 3))
    path = gm.trajectory("ad-psgd", net, lambda x, t: 0 * x, x0, steps=60)
    torch.testing.assert_close(path.mean(dim=1), path[:1].mean(dim=1).expand(61, -1), rtol=0, atol=1e-12)
    assert path[-1].std(dim=0).max() < 1e-3 * path[0].std(dim=0).min()


def test_every_neighbour_is_met_about_equally_often():
    """One-sided, on three agents, two of them reliable: agent 0 meets its late neighbour in half of the steps."""
    net = gm.network("complete:3", 1, clusters=[[0, 1], [2]], startup="full")
    x0 = np.array([[0.0], [1.0], [10.0]])

    def met(seed):
        return float(
            gm.trajectory("ad-psgd/exchange=one-sided", net, lambda x, t: 0 * x, x0, steps=1, seed=seed)[1, 0, 0]
        )

    ends = [met(seed) for seed in range(200)]
    assert set(ends) == {0.5, 5.0}
    assert 70 < ends.count(5.0) < 130


# ---- DiLoCo

OUTER = st.sampled_from([(0.7, 0.9), (1.0, 0.0), (0.5, 0.5)])


@always
@given(worlds(kinds=KNOWN), st.integers(1, 6), OUTER, st.sampled_from(["eager", "delayed"]))
def test_diloco_counts_each_way_of_other_islands_once(world, every, outer, mode):
    outer_lr, mu = outer
    spared = world.network.spared.numpy()
    delays = slow.sent_at(lambda t: world.delays[t], np.where(spared, 1, every))
    rule = slow.DiLoCo(
        slow.exchange_matrix(world.network.W.numpy()), spared, every, outer_lr, mu, delayed=mode == "delayed"
    )
    algorithm = gm.algorithm("diloco", every=every, outer_lr=outer_lr, outer_momentum=mu, mode=mode)
    assert_same_path(world.path(algorithm), world.truth(rule, delays=delays))


@pytest.mark.parametrize("every", [2, 5])
@pytest.mark.parametrize(("outer_lr", "mu"), [(0.7, 0.9), (0.4, 0.5)])
def test_diloco_without_delay_is_the_published_recursion(every, outer_lr, mu):
    """H inner steps; Delta = mean_i (theta - theta_i); theta <- OuterOpt(theta, Delta), Nesterov SGD as torch has it.

    Gradients do not depend on the state: the step after an exchange has that of before it, here and not there.
    """
    start, gradients = np.ones(3), np.random.default_rng(every).standard_normal((5 * every, 5, 3))
    algorithm = gm.algorithm("diloco", every=every, outer_lr=outer_lr, outer_momentum=mu)
    path = gm.trajectory(
        algorithm, gm.network("complete:5", 0), lambda x, t: gradients[t], start, lr=0.1, steps=5 * every
    )
    theta = torch.nn.Parameter(torch.from_numpy(start.copy()))
    outer = torch.optim.SGD([theta], lr=outer_lr, momentum=mu, nesterov=True)
    workers, t = np.tile(start, (5, 1)), 0
    for _ in range(5):
        for _ in range(every):
            workers = workers - 0.1 * gradients[t]
            t += 1
            np.testing.assert_allclose(path[t], workers, rtol=0, atol=1e-12)
        theta.grad = theta.detach() - torch.from_numpy(workers.mean(axis=0))
        outer.step()
        workers = np.tile(theta.detach().numpy(), (5, 1))


@pytest.mark.parametrize("every", [2, 3, 5])
def test_diloco_without_delay_and_outer_momentum_is_local_sgd_with_plain_averages(every):
    world = World(n=5, d=3, num_steps=16)
    net = gm.network("complete:5", 0)
    start = world.smooth.x0[0]
    algorithm = gm.algorithm("diloco", every=every, outer_lr=1.0, outer_momentum=0.0)
    path = gm.trajectory(algorithm, net, world.smooth.gradient, start, lr=0.1, steps=16)
    x, truth = np.tile(start, (5, 1)), [np.tile(start, (5, 1))]
    for t in range(16):
        outer = t > 0 and t % every == 0
        x = (np.tile(x.mean(axis=0), (5, 1)) if outer else x) - 0.1 * world.smooth.gradient(x, t)
        truth.append(x)
    assert_same_path(path, np.array(truth))


def test_diloco_loses_no_progress_however_lossy_the_links():
    """With equal shares, once all is heard, every anchor has moved by the mean of all that was done."""
    net = gm.network("complete:4", 3, clusters="2,2", loss=0.6)
    num_moving, start = 60, torch.tensor([1.0, -2.0], dtype=torch.float64)
    algorithm = gm.algorithm("diloco", every=4, outer_lr=1.0, outer_momentum=0.0)
    slope = torch.tensor([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0], [-1.0, 1.0]], dtype=torch.float64)
    path = gm.trajectory(algorithm, net, lambda x, t: slope * (t < num_moving), start, lr=0.1, steps=300, seed=3)
    end = start - 0.1 * num_moving * slope.mean(dim=0)
    torch.testing.assert_close(path[-1], end.expand(4, -1), rtol=0, atol=1e-9)


@pytest.mark.parametrize("graph", ["ring:4", "ring:6", "star:5"])
def test_diloco_does_not_drive_anchors_apart_where_weights_have_negative_eigenvalues(graph):
    net = gm.network(graph, 2, clusters="2,2" if graph == "ring:4" else None)
    noise = torch.from_numpy(np.random.default_rng(0).standard_normal((600, net.num_agents, 3)))
    path = gm.trajectory("diloco/every=4", net, lambda x, t: 0.1 * x + noise[t], np.ones(3), lr=0.1, steps=600)
    assert path[-100:].abs().max() < 10


def test_diloco_sends_totals_across_rarely_and_models_inside_always():
    world = World(n=4, d=3, num_steps=10, largest=2)
    net = world.network
    run = simulation(gm.algorithm("diloco", every=5), world)
    inside, across = net.spared.sum(dim=0), (net.links & ~net.spared).sum(dim=0)
    for t in range(10):
        expected = inside * 3 * (8 + 8) + across * 3 * 8 * (t % 5 == 0)
        assert torch.equal(run.step().sent, expected)


# ---- all of them

ROWS = [
    *(
        "ad-psgd",
        "ad-psgd/exchange=one-sided",
        "swift",
        "feddelavg/every=2",
        "feddelavg/alpha=0.7/every=1",
        "local-sgd/every=3",
    ),
    *("diloco/every=3", "diloco/every=2/mode=delayed", "sdm-asgd"),
]


@pytest.mark.parametrize("text", ROWS)
@few
@given(worlds(d=st.just(4)))
def test_one_agents_row_alone_gives_that_row_of_states_and_memory(text, world):
    algorithm = algorithm_from(text)
    for call in calls(algorithm, world):
        for i in {0, world.n - 1}:
            update = algorithm.step(*row_of(call, i))
            torch.testing.assert_close(update.x, call.update.x[i : i + 1], rtol=1e-12, atol=1e-12)
            for name, expected in call.update.state.items():
                torch.testing.assert_close(update.state[name], expected[i : i + 1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("local-sgd/every=0", "every must be 1 step or more, got 0"),
        ("swift/every=-1", "every must be 1 step or more, got -1"),
        ("diloco/every=0", "every must be 1 step or more, got 0"),
        ("diloco/outer_lr=0", "outer_lr must be positive"),
        ("diloco/outer_momentum=1", "outer_momentum must lie in"),
        ("diloco/mode=late", "choose one of: delayed, eager"),
        ("feddelavg/alpha=1.5", "alpha must lie in"),
        ("feddelavg/every=0", "every must be 1 step or more"),
        ("ad-psgd/exchange_steps=-1", "exchange_steps must be 0 or more"),
        ("feddelavg/alpha=half", "unknown alpha 'half'"),
        ("sdm-asgd/damping=1.5", r"damping must lie in \[0, 1\], got 1.5"),
        ("sdm-asgd/damping=nan", "damping must lie in"),
        ("sdm-asgd/lag=-1", "lag must be 0 or more and finite, got -1"),
        ("sdm-asgd/lag=inf", "lag must be 0 or more and finite, got inf"),
        ("sdm-asgd/gain=large", "unknown gain 'large'"),
    ],
)
def test_a_wrong_option_is_refused(text, words):
    with pytest.raises(gm.UserError, match=words):
        algorithm_from(text)
