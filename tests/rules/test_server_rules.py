"""The rules with a parameter server: against their slow truth, and what follows from their equations."""

import dataclasses
from functools import cached_property

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gm
import oracle_server
from gossamer.engine.simulation import Simulation
from gossamer.engine.trajectory import FunctionSource
from spies import calls, row_of, simulation
from worlds import World, algorithm_from, assert_same_path, few, some, worlds


@dataclasses.dataclass(frozen=True)
class Served(World):
    """A world where everyone has a link with the hub."""

    hub: int = 0

    @cached_property
    def _graph(self) -> nx.Graph:
        graph = super()._graph
        graph.add_edges_from((self.hub, k) for k in range(self.n) if k != self.hub)
        return graph

    def slow(self, name, **options):
        return oracle_server.run(
            name,
            server=self.hub,
            delays=lambda t: self.delays[t],
            x0=self.smooth.x0,
            gradient=self.smooth.gradient,
            lr=self.lr,
            steps=self.num_steps,
            startup=self.network.startup,
            **options,
        )


@st.composite
def served(draw, **options):
    world = draw(worlds(**options))
    values = {field.name: getattr(world, field.name) for field in dataclasses.fields(world)}
    return Served(**values, hub=draw(st.integers(0, world.n - 1)))


def steps_of(algorithm, world, **options):
    """The path, of agents whose data may differ in size."""
    run = simulation(algorithm, world, **options)
    path = [run.x]
    for _ in range(world.num_steps):
        run.step()
        path.append(run.x)
    return torch.stack(path)


# ---- against the slow truth

RULES = [
    ("asgd", {}),
    ("asgd", {"server_momentum": 0.8}),
    ("dc-asgd-c", {"lam0": 0.7}),
    ("dc-asgd-a", {"lam0": 2.0, "ms_decay": 0.6}),
    ("dasgd-is", {}),
    ("gap-aware", {}),
    ("gap-aware", {"server_momentum": 0.5}),
    ("delay-adaptive", {}),
    ("delay-adaptive", {"rule": "wu"}),
    ("delay-adaptive", {"rule": "wu", "alpha": 0.5, "server_momentum": 0.5}),
    ("delay-adaptive", {"rule": "wu-2"}),
    ("delay-adaptive", {"rule": "inverse"}),
    ("delay-adaptive", {"rule": "cutoff", "limit": 4}),
    ("delayed-nesterov", {"beta": 0.7}),
    ("adaptive-braking", {"mu": 0.9}),
    ("adaptive-braking", {"mu": 0.5, "rho": 0.5}),
]


@pytest.mark.parametrize(("name", "options"), RULES, ids=str)
@some
@given(served())
def test_every_rule_follows_its_equations(name, options, world):
    path = world.path(gm.algorithm(name, server=world.hub, **options))
    assert_same_path(path, world.slow(name, **options))


@some
@given(served(), st.integers(0, 100))
def test_importance_sampling_knows_the_size_of_everyones_data(world, seed):
    share = np.random.default_rng(seed).uniform(0.2, 2.0, world.n)
    path = steps_of(gm.algorithm("dasgd-is", server=world.hub), world, share=torch.from_numpy(share))
    assert_same_path(path, world.slow("dasgd-is", share=share))


@few
@given(served(d=st.just(5)), st.sampled_from([0.5, 2.0]))
def test_adaptive_braking_by_tensor_takes_one_alignment_of_each(world, rho):
    rule = gm.algorithm("adaptive-braking", rho=rho, granularity="tensor", server=world.hub)
    truth = world.slow("adaptive-braking", mu=0.9, rho=rho, lengths=[2, 1, 2])
    assert_same_path(world.path(rule, segments=(2, 1, 2)), truth)


@few
@given(served(), st.sampled_from([0.5, 0.9]))
def test_adaptive_braking_that_does_not_brake_is_asgd_with_momentum(world, mu):
    path = world.path(gm.algorithm("adaptive-braking", mu=mu, rho=0, server=world.hub))
    other = world.path(gm.algorithm("asgd", server_momentum=mu, server=world.hub))
    torch.testing.assert_close(path, other, rtol=1e-12, atol=1e-12)


# ---- against the publications: one late gradient a step


def braked(g, moved, kept, workers):
    c = g @ kept["v"] / max(np.linalg.norm(g) * np.linalg.norm(kept["v"]), 1e-12)
    kept["v"] = 0.9 * kept["v"] + (1 - 2.0 * c) * g
    return kept["v"]


def compensated(g, moved, kept, workers):
    return g + 0.7 * g * g * moved


def compensated_adaptively(g, moved, kept, workers):
    kept["ms"] = 0.6 * kept["ms"] + 0.4 * g * g  # of one worker, whose gradient is g
    return g + 2.0 / np.sqrt(kept["ms"] + 1e-7) * g * g * moved


def nesterov_once_a_round(g, moved, kept, workers):
    """w -= eta g at every gradient; every n-th: m <- beta m + their mean, w -= eta beta m."""
    kept["count"], kept["sum"] = kept["count"] + 1 + workers, kept["sum"] + (1 + workers) * g
    if kept["count"] < kept["n"]:
        return g
    kept["v"] = 0.9 * kept["v"] + kept["sum"] / kept["count"]
    kept["count"], kept["sum"] = 0, 0 * g
    return g + 0.9 * kept["v"]


def by_gap(g, moved, kept, workers):
    """g / (1 + |moved| / C), C the largest rate times the root mean square of the velocities; inside the momentum."""
    mean = kept["ms"] / (1 - 0.999 ** max(kept["count"], 1))
    kept["v"] = 0.9 * kept["v"] + g / (1 + np.abs(moved) / (0.02 * np.sqrt(mean) + 1e-12))
    kept["ms"], kept["count"] = 0.999 * kept["ms"] + 0.001 * kept["v"] ** 2, kept["count"] + 1
    return kept["v"]


def adaptive_1(left, age):
    """gamma_k = alpha max(0, gamma' - the sum of the steps since), alpha = 0.9 and gamma' = 1."""
    return 0.9 * max(0.0, left)


def adaptive_2(left, age):
    """gamma_k = gamma' / (age + 1) if no more than that is left, else 0."""
    return 1 / (age + 1) if 1 / (age + 1) <= left + 1e-5 else 0.0


def by_steps_since(rule):
    """Every gradient of a step of the server counts 1/n of its gamma; the server's own is never late."""

    def scaled(g, moved, kept, workers):
        steps = kept["steps"]
        gamma = rule(1 - sum(steps[-kept["delay"] :]), min(len(steps), kept["delay"]))
        steps.append((rule(1.0, 0) + workers * gamma) / kept["n"])
        return gamma * g

    return scaled


PUBLISHED = {
    "adaptive-braking": braked,
    "gap-aware/server_momentum=0.9": by_gap,
    "delay-adaptive/rule=wu": by_steps_since(adaptive_1),
    "delay-adaptive/rule=wu-2": by_steps_since(adaptive_2),
    "dc-asgd-c/lam0=0.7": compensated,
    "dc-asgd-a/lam0=2/ms_decay=0.6": compensated_adaptively,
    "delayed-nesterov/beta=0.9": nesterov_once_a_round,
}


@pytest.mark.parametrize("text", PUBLISHED)
@few
@given(st.integers(0, 2**16), st.integers(1, 4), st.integers(2, 9))
def test_a_servers_rule_is_the_published_recursion_on_gradients_of_one_delay(text, seed, tau, n):
    """The gradient is of the model of 2 tau + 1 steps ago, and all workers are alike.

    Each is n / (n - 1) times as long, as the server's own, which is not late, is zero here.
    """
    delay, net = 2 * tau + 1, gm.network(f"star:{n}", tau)
    rng = np.random.default_rng(seed)
    H, start = np.diag(rng.uniform(0.3, 1.0, 3)), rng.standard_normal(3)

    def gradient(x, t):
        g = np.asarray(x) @ H * n / (n - 1)
        g[0] = 0
        return g

    path = gm.trajectory(text, net, gradient, start, lr=0.02, steps=40)
    w, kept = [start], {"v": np.zeros(3), "ms": np.zeros(3), "sum": np.zeros(3), "count": 0, "n": n}
    kept |= {"delay": delay, "steps": []}
    longer = n / (n - 1) if text.startswith("dc-asgd") else 1  # where a gradient enters more than linearly
    for t in range(40):
        old = w[max(t - delay, 0)]
        arrived = t >= tau  # the first gradients come after tau steps
        g = longer * H @ old if arrived else np.zeros(3)
        step = PUBLISHED[text](g, w[-1] - old, kept, (n - 1) * arrived)
        w.append(w[-1] - 0.02 / longer * step)
        np.testing.assert_allclose(path[t + 1, 0], w[-1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["asgd", "delay-adaptive"])
@few
@given(served(kinds=("fixed",), startups=("wait", "full"), smallest=2, reliable_delay=1))
def test_near_workers_may_be_late_too(name, world):
    assert_same_path(world.path(gm.algorithm(name, server=world.hub)), world.slow(name))


@pytest.mark.parametrize(("name", "options"), RULES, ids=str)
@few
@given(served(d=st.just(3)))
def test_one_agents_row_alone_gives_that_row_of_states_and_of_what_is_kept(name, options, world):
    algorithm = gm.algorithm(name, server=world.hub, **options)
    for call in calls(algorithm, world):
        for i in {world.hub, (world.hub + 1) % world.n}:
            update = algorithm.step(*row_of(call, i))
            torch.testing.assert_close(update.x, call.update.x[i : i + 1], rtol=1e-12, atol=1e-12)
            assert update.state.keys() == call.update.state.keys()
            for part, kept in update.state.items():
                torch.testing.assert_close(kept, call.update.state[part][i : i + 1], rtol=1e-12, atol=1e-12)


# ---- what follows from the equations


@pytest.mark.parametrize("graph", ["star:5", "complete:5"])
def test_without_delay_asgd_is_sgd_on_the_mean_loss_with_gradients_one_step_old(graph):
    world = World(n=5, d=3, num_steps=1)
    path = gm.trajectory("asgd", gm.network(graph), world.smooth.gradient, world.smooth.x0[0], lr=0.1, steps=30)
    w = before = world.smooth.x0[0]
    for t in range(30):
        old = sum(world.smooth.one(k, before, t) for k in range(1, 5))
        w, before = w - 0.1 * (world.smooth.one(0, w, t) + old) / 5, w
        np.testing.assert_allclose(path[t + 1, 0], w, rtol=1e-12)
        np.testing.assert_allclose(path[t + 1, 1:], np.tile(before, (4, 1)), rtol=1e-12)


@pytest.mark.parametrize("tau", [0, 1, 4])
def test_a_round_trip_makes_a_gradient_two_delays_and_a_step_old(tau):
    world = Served(n=4, d=2, num_steps=3 * tau + 5, largest=tau, num_clusters=None)
    *_, last = calls(gm.algorithm("delay-adaptive", server=0), world)
    stamps = last.inbox.late[0].message["stamp"] if tau else last.inbox.message["stamp"]
    assert (last.own.t - stamps[1:] == 2 * tau + 1).all()


@pytest.mark.parametrize("tau", [0, 1, 4])
def test_mishchenkos_scale_is_one_over_the_age_once_all_gradients_arrive_at_every_step(tau):
    """N / max(N, N age): gradients at most a step old count in full, as published; the model shows the scales."""
    net = gm.network("complete:4", tau, clusters="2,2")
    path = gm.trajectory("delay-adaptive", net, lambda x, t: torch.eye(4), torch.zeros(4, 4), lr=1.0, steps=60)
    pace = path[-2, 0] - path[-1, 0]
    expected = torch.tensor([1.0, 1.0, *[1 / (2 * tau + 1)] * 2]).double() / 4
    torch.testing.assert_close(pace.double(), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("rule", ["wu", "wu-2"])
@few
@given(served())
def test_wus_steps_within_a_delay_add_up_to_no_more_than_one(rule, world):
    """The condition of the theorem: gamma_k and the steps since the gradient's model, gamma' together at most."""
    algorithm = gm.algorithm("delay-adaptive", rule=rule, server=world.hub)
    before = {}
    for call in calls(algorithm, world):
        before[call.own.t] = float(call.own.state["moved"][world.hub])
        messages = [(late.new, late.message) for late in call.inbox.late] + [(call.inbox.new, call.inbox.message)]
        counted = float(call.update.state["moved"][world.hub]) - before[call.own.t]
        since = 0.0
        for new, message in messages:
            for k in torch.nonzero(new.dense()[world.hub])[:, 0].tolist():
                since = max(since, before[call.own.t] - float(message["moved"][k]))
        alone = 0.9 if rule == "wu" else 1.0
        assert counted <= alone + 1e-9 and (since <= 1 or counted < alone)


SAME_AS_ASGD = [
    ("dc-asgd-c", {"lam0": 0.0}),
    ("dc-asgd-a", {"lam0": 0.0}),
    ("delay-adaptive", {"rule": "cutoff", "limit": 10**6}),
    ("delayed-nesterov", {"beta": 0.0}),
]


@pytest.mark.parametrize(("name", "options"), SAME_AS_ASGD, ids=str)
@few
@given(served())
def test_with_its_correction_at_rest_a_rule_is_asgd_to_the_last_bit(name, options, world):
    path, asgd = (
        world.path(gm.algorithm(rule, server=world.hub, **more)) for rule, more in [(name, options), ("asgd", {})]
    )
    assert torch.equal(path, asgd)


@some
@given(served(kinds=("fixed", "matrix"), startups=("wait", "full")))
def test_importance_sampling_is_asgd_to_the_last_bit_where_data_and_arrivals_are_equal(world):
    path, asgd = (world.path(gm.algorithm(name, server=world.hub)) for name in ("dasgd-is", "asgd"))
    assert torch.equal(path, asgd)


def test_importance_sampling_is_not_asgd_with_unequal_data_or_arrivals():
    world = Served(n=4, d=3, num_steps=20)
    share = torch.tensor([0.5, 1.5, 1.0, 1.0])
    assert not torch.equal(steps_of(gm.algorithm("dasgd-is"), world, share=share), world.path(gm.algorithm("asgd")))
    net = gm.network("clusters:2,2", "uniform:1,9")
    path, asgd = (
        gm.trajectory(name, net, world.smooth.gradient, world.smooth.x0, steps=20) for name in ("dasgd-is", "asgd")
    )
    assert not torch.equal(path, asgd)


@pytest.mark.parametrize("share", [(1.0, 1.0, 1.0, 1.0), (0.4, 1.6, 1.2, 0.8)])
def test_importance_sampling_follows_the_mean_over_the_data_and_asgd_whoever_gets_through(share):
    """Agent k's gradient is the k-th unit vector, so that the model shows what each agent counted for."""
    net, share = gm.network("clusters:2,2", "uniform:1,9"), torch.tensor(share, dtype=torch.float64)
    source, x0 = FunctionSource(lambda x, t: torch.eye(4), None), torch.zeros(4, 4).double()
    moved = {}
    for name in ("asgd", "dasgd-is"):
        run = Simulation(gm.algorithm(name), net, source, x0, lr=lambda t: 0.1, share=share)
        path = [run.x[0]]
        for _ in range(300):
            run.step()
            path.append(run.x[0])
        way = path[100] - path[-1]  # the rates of arrival are known by then
        moved[name] = way / way.sum()
    assert (moved["asgd"][2:] < 0.7 * moved["asgd"][:2].min()).all()
    torch.testing.assert_close(moved["dasgd-is"], share / 4, rtol=0.15, atol=0)


def test_gap_aware_counts_the_gap_in_steps_so_that_at_a_steady_pace_it_is_the_inverse_of_the_age():
    net = gm.network("clusters:2,2", 3)
    slope = torch.tensor([1.0, -0.01], dtype=torch.float64)
    paths = [
        gm.trajectory(name, net, lambda x, t: slope.expand(4, 2), torch.zeros(2).double(), steps=300)
        for name in ("gap-aware", "delay-adaptive/rule=inverse")
    ]
    pace, inverse = (path[-1, 0] - path[-101, 0] for path in paths)
    torch.testing.assert_close(pace, inverse, rtol=0.03, atol=0)
    torch.testing.assert_close(inverse, -10 * slope * (1 + 1 / 2 + 2 / 8) / 4, rtol=1e-9, atol=0)


def test_delayed_nesterov_steps_with_ten_times_the_learning_rate_in_the_end():
    """Its momentum adds up to 1/(1 - beta) gradients, of which the first counts at once."""
    path = gm.trajectory(
        "delayed-nesterov", gm.network("clusters:2,2", 3), lambda x, t: torch.ones_like(x), [0.0], steps=300
    )
    torch.testing.assert_close(path[-2, 0] - path[-1, 0], torch.tensor([1.0]).double(), rtol=1e-6, atol=0)


# ---- where the server is, and what is refused


@pytest.mark.parametrize(
    ("clusters", "server"),
    [(None, 0), ("2,3", 2), ("3,2", 0), ("0,3/4,2,1", 1), ([[4, 3, 2], [0, 1]], 2), ("2,2,1", 0)],
)
def test_the_server_is_the_first_agent_of_the_largest_cluster(clusters, server):
    net = gm.network("complete:5", 2, clusters=clusters)
    assert gm.algorithm("asgd").server_in(net) == server
    default, named = (
        gm.trajectory(text, net, lambda x, t: torch.sin(x + t), torch.eye(5), steps=9)
        for text in ("asgd", f"asgd/server={server}")
    )
    assert torch.equal(default, named)


@pytest.mark.parametrize(
    ("graph", "text", "words"),
    [
        ("ring:5", "asgd", "agent 0 has no link with 2, 3; use complete:N, star:N or a paper network, or another"),
        ("ring:5", "gap-aware/server=3", "gap-aware needs a server .* agent 3 has no link with 0, 1;"),
        ("ring:12", "asgd", "no link with 2, 3, 4, 5 and 5 more; use"),
        ("star:4", "asgd/server=1", "agent 1 has no link with 2, 3;"),
        ("star:4", "asgd/server=4", "server 4 is none of the agents 0 to 3; use -1"),
    ],
)
def test_a_server_must_reach_everyone(graph, text, words):
    with pytest.raises(gm.UserError, match=words):
        algorithm_from(text).check(gm.network(graph))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("asgd/server=-2", "server must be .* got -2; use -1"),
        ("asgd/server_momentum=1", r"server_momentum must lie in \[0, 1\), got 1"),
        ("asgd/gradient_at=mixed", "asgd mixes nothing, so gradient_at cannot be 'mixed'; use gradient_at=own"),
        ("dc-asgd-c/lam0=-1", "lam0 must be 0 or more and finite, got -1"),
        ("dc-asgd-a/lam0=inf", "lam0 must be 0 or more and finite, got inf"),
        ("dc-asgd-a/ms_decay=1", r"ms_decay must lie in \[0, 1\), got 1"),
        ("delay-adaptive/alpha=0", "alpha must lie above 0 and be at most 1, got 0"),
        ("delay-adaptive/limit=-1", "limit must be 0 or more, got -1"),
        ("delay-adaptive/rule=never", "rule"),
        ("delayed-nesterov/beta=1.5", r"beta must lie in \[0, 1\), got 1.5"),
        ("adaptive-braking/mu=-0.1", "mu must lie in"),
        ("adaptive-braking/rho=-1", "rho must be 0 or more"),
        ("adaptive-braking/granularity=layer", "choose one of: model, tensor"),
        ("adaptive-braking/server_momentum=0.9", "momentum of its own, got server_momentum 0.9; use mu"),
        ("delayed-nesterov/server_momentum=0.9", "momentum of its own, got server_momentum 0.9; use beta"),
    ],
)
def test_values_out_of_range_are_refused(text, words):
    with pytest.raises(gm.UserError, match=words) as refusal:
        algorithm_from(text)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("local", [{"momentum": 0.9}, {"weight_decay": 0.1}], ids=str)
def test_agents_have_no_optimiser_of_their_own(local):
    for rule in map(gm.algorithm, ("asgd", "dc-asgd-a", "delayed-nesterov", "adaptive-braking")):
        with pytest.raises(gm.UserError, match=f"{rule.name} takes its steps at the server, so it needs plain SGD"):
            gm.trajectory(rule, gm.network("star:3"), lambda x, t: x, [1.0], steps=1, **local)


@pytest.mark.parametrize("startup", ["wait", "min"])
@pytest.mark.parametrize("reliable_delay", [0, 1, 3])
def test_a_gradient_of_the_first_step_counts_once_however_late_near_workers_are(reliable_delay, startup):
    net = gm.network("complete:4", 2, clusters="2,2", reliable_delay=reliable_delay, startup=startup)
    start = torch.zeros(4, 4, dtype=torch.float64)
    path = gm.trajectory("asgd", net, lambda x, t: torch.eye(4).double() * (t == 0), start, lr=1.0, steps=12)
    torch.testing.assert_close(path[-1, 0], torch.full((4,), -0.25, dtype=torch.float64))
