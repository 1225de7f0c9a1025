"""Rules on a graph that changes, in steps and in seconds."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gm
from changing_graphs import d_asgd_path, pairs_of
from gossamer.algorithms import algorithm_names
from gossamer.engine.simulation import Simulation
from gossamer.engine.timed.inboxes import Inboxes
from gossamer.engine.timed.timed_simulation import TimedSimulation
from gossamer.engine.timed.timeline import TimedFunctionSource
from gossamer.engine.timed.weights_of_rounds import WeightsOfRounds
from gossamer.engine.trajectory import FunctionSource
from gossamer.network import Rounds
from gossamer.network.listed_graphs import ListedGraphs
from gossamer.runtime.node import check_rule
from gossamer.theory import stability
from worlds import Smooth, algorithm_from

pytestmark = pytest.mark.filterwarnings("ignore::gossamer.StabilityWarning")

N, LR = 6, 0.1
SMOOTH = Smooth(N, 3, 0)
RULES = [name for name in algorithm_names() if not gm.algorithm(name).totals]
FURTHER = ["pc-asgd/theta=kalman", "ad-psgd/exchange=one-sided", "d-asgd/gradient_at=mixed"]
CHANGING = ["one-peer", "matching", "regular:3", "matching+link-churn:6,2", "churn:7,3"]
ROUNDS = [name for name in CHANGING if "churn" not in name]


def path_of(rule, net, steps=14, **given):
    given = {"lr": LR, "seed": 0, "loss": SMOOTH.loss} | given
    return gm.trajectory(algorithm_from(rule), net, SMOOTH.gradient, SMOOTH.x0, steps=steps, **given)


def gradient_at(x, agents, iterations):
    rows = zip(np.asarray(x), agents, iterations, strict=True)
    return np.array([SMOOTH.one(int(i), row, int(k)) for row, i, k in rows])


def line_of(rule, net, bed, seconds, **given):
    given = {"lr": LR, "seed": 0} | given
    return gm.timeline(algorithm_from(rule), net, gradient_at, SMOOTH.x0, testbed=bed, seconds=seconds, **given)


def simulation_of(rule, net, seed=0, **given):
    source = FunctionSource(SMOOTH.gradient, SMOOTH.loss)
    x0 = torch.from_numpy(SMOOTH.x0)
    return Simulation(algorithm_from(rule), net, source, x0, lr=lambda t: LR, seed=seed, **given)


# ---- what the mathematics says


@pytest.mark.parametrize("rule", ["sync", "d-asgd", "c-asgd"])
@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_one_period_of_one_peer_averaging_is_exact_consensus(rule, m):
    net = gm.network(f"exponential:{2**m}", schedule="one-peer")
    x0 = np.random.default_rng(m).normal(size=(2**m, 3))
    path = gm.trajectory(rule, net, lambda x, t: 0 * x, x0, steps=m).numpy()
    np.testing.assert_allclose(path[-1], np.broadcast_to(x0.mean(axis=0), x0.shape), atol=1e-14)
    assert m < 2 or np.ptp(path[-2], axis=0).max() > 1e-3


@given(st.integers(0, 99))
def test_with_a_matching_each_agent_averages_with_exactly_one_other(seed):
    net = gm.network(f"complete:{N}", schedule="matching")
    x0 = np.eye(N)
    first = gm.trajectory("d-asgd", net, lambda x, t: 0 * x, x0, steps=1, seed=seed).numpy()[1]
    for i, row in enumerate(first):
        (partner,) = (k for k in np.flatnonzero(row) if k != i)
        assert row[i] == row[partner] == first[partner][i] == 0.5


@settings(max_examples=10)
@given(st.sampled_from(CHANGING), st.sampled_from(["d-asgd", "sync"]), st.integers(0, 99), st.booleans())
def test_without_delay_averaging_keeps_the_mean(schedule, rule, seed, lazy):
    net = gm.network(f"complete:{N}", schedule=schedule, lazy=lazy)
    path = gm.trajectory(rule, net, lambda x, t: 0 * x, SMOOTH.x0, steps=12, seed=seed).numpy()
    np.testing.assert_allclose(path.mean(axis=1), np.broadcast_to(SMOOTH.x0.mean(axis=0), (13, 3)), atol=1e-13)


@pytest.mark.parametrize("schedule", ROUNDS)
def test_without_delay_d_asgd_and_clipping_are_synchronous_on_the_graph_of_the_round(schedule):
    net = gm.network(f"complete:{N}", schedule=schedule)
    truth = d_asgd_path(lambda t: pairs_of(net, 0, t), lambda i, k: 0, SMOOTH.x0, SMOOTH.gradient, LR, 14)
    for rule in ("sync", "d-asgd", "c-asgd", "pc-asgd"):
        np.testing.assert_allclose(path_of(rule, net).numpy(), truth, atol=1e-12)


@settings(max_examples=20)
@given(
    st.sampled_from(ROUNDS),
    st.sampled_from(["complete:6", "random:6,p=0.6,seed=2"]),
    st.integers(0, 3),
    st.integers(0, 99),
    st.booleans(),
)
def test_d_asgd_with_delays_goes_where_the_oracle_goes(schedule, graph, largest, seed, lazy):
    if not graph.startswith("complete"):
        schedule = "matching"  # the others need links that a random graph may lack
    delay = np.random.default_rng(seed).integers(0, largest + 1, (N, N))
    net = gm.network(graph, delay, schedule=schedule, lazy=lazy)
    truth = d_asgd_path(
        lambda t: pairs_of(net, seed, t),
        lambda i, k: int(delay[i, k]),
        SMOOTH.x0,
        SMOOTH.gradient,
        LR,
        20,
        lazy=lazy,
    )
    np.testing.assert_allclose(path_of("d-asgd", net, steps=20, seed=seed).numpy(), truth, atol=1e-11)


# ---- always active


def always(net):
    links = net.pattern
    return ListedGraphs(tuple((0, k, i) for k, i in zip(links.senders.tolist(), links.receivers.tolist(), strict=True)))


@pytest.mark.parametrize("rule", [*RULES, *FURTHER])
@pytest.mark.parametrize("delay", [2, "uniform:0,3"])
def test_a_schedule_of_all_links_is_no_schedule(rule, delay):
    net = gm.network(f"complete:{N}", delay, clusters="2,4", loss=0.2 if delay != 2 else 0.0)
    plain = path_of(rule, net)
    assert torch.equal(plain, path_of(rule, net.changed(schedule=always(net))))
    assert torch.equal(
        plain, path_of(rule, net.changed(schedule=gm.network("complete:6", schedule="regular:5").schedule))
    )


@pytest.mark.parametrize("rule", ["d-asgd", "c-asgd", "pc-asgd", "dm-asgd", "sync"])
@pytest.mark.parametrize("compute", [1.0, [1.0, 1.3, 1.0, 0.7, 2.0, 1.0]])
def test_in_seconds_a_schedule_of_all_links_is_no_schedule(rule, compute):
    net = gm.network("random:6,p=0.6,seed=2")
    bed = gm.testbed(agents=N, compute=compute, latency=1.5)
    lines = [line_of(rule, each, bed, 12.0) for each in (net, net.changed(schedule=always(net)))]
    assert all(map(torch.equal, lines[0].paths, lines[1].paths))


# ---- steps and seconds


@pytest.mark.parametrize("rule", [*(name for name in RULES if not gm.algorithm(name).votes), *FURTHER])
@pytest.mark.parametrize("schedule", ROUNDS)
@pytest.mark.parametrize("lone", [False, True], ids=["stacked", "one by one"])
def test_equal_speeds_and_whole_delays_go_where_the_steps_go(monkeypatch, rule, schedule, lone):
    if lone:
        monkeypatch.setattr(Inboxes, "blocks_by_age", lambda *_: None)
    latency = np.random.default_rng(1).integers(0, 4, (N, N))
    made = algorithm_from(rule)
    net = gm.network(f"complete:{N}", 0 if made.waits else latency.T, schedule=schedule)
    bed = gm.testbed(agents=N, compute=1.0, latency=np.zeros((N, N)) if made.waits else latency.astype(float))
    line = line_of(rule, net, bed, 16.5, loss=lambda x, agents, iterations: np.zeros(len(agents)))
    path = path_of(rule, net, steps=16, loss=lambda x, t: np.zeros(N)).swapaxes(0, 1)
    for i in range(N):
        np.testing.assert_allclose(line.paths[i].numpy(), path[i].numpy(), atol=1e-12)


@pytest.mark.parametrize("schedule", ROUNDS)
@pytest.mark.parametrize("rule", ["d-asgd", "c-asgd", "pc-asgd"])
def test_at_other_speeds_an_agent_hears_only_its_partners_of_its_own_iteration(rule, schedule):
    net = gm.network(f"complete:{N}", schedule=schedule)
    bed = gm.testbed(agents=N, compute=[1.0, 1.3, 1.0, 0.7, 2.0, 1.0], latency=0.2)
    x0 = torch.from_numpy(SMOOTH.x0)
    run = TimedSimulation(algorithm_from(rule), net, bed, TimedFunctionSource(gradient_at), x0, lr=lambda k: LR)
    links, done, heard_any = net.pattern, [0] * N, 0
    while (reports := run.advance(20.0)) is not None:
        for report in reports:
            for agent, heard in zip(report.agents, report.heard, strict=True):
                partners = {k for i, k in pairs_of(net, 0, done[agent]) if i == agent}
                senders = links.senders_of(agent)
                held = {k for k, age in zip(senders, heard.ages, strict=True) if age >= 0}
                assert held <= partners
                heard_any += len(held)
                done[agent] += 1
    assert heard_any > 0
    if rule == "d-asgd":
        sent = [sum(i == agent for t in range(done[agent]) for i, _ in pairs_of(net, 0, t)) for agent in range(N)]
        assert run.table.links.sent == [count * 3 * 8 for count in sent]


def test_a_link_that_is_seldom_used_is_not_silent():
    rows = [(t, i, (i + 1) % N) for t in (0, 1, 2, 3, 45) for i in range(N)]
    net = gm.network("ring:6", 1, schedule=ListedGraphs(tuple(rows)))
    line = line_of("d-asgd", net, gm.testbed(agents=N, compute=1.0, latency=1.0), 46.0)
    path = path_of("d-asgd", net, steps=46).numpy().swapaxes(0, 1)
    for i in range(N):
        np.testing.assert_allclose(line.paths[i].numpy(), path[i], atol=1e-12)
    assert np.abs(path[0, -1] - path[0, -2] + LR * SMOOTH.one(0, path[0, -2], 45)).max() > 1e-6  # it has mixed


def test_clipping_at_other_speeds_counts_a_neighbours_link_as_it_was_when_used():
    """Agent 1 is faster. In even iterations it meets agent 0, in odd ones agent 2, of which nothing is ever heard."""
    net = gm.network("path:3", schedule=ListedGraphs(((0, 0, 1), (1, 1, 2))))
    bed = gm.testbed(agents=3, compute=[1.0, 0.45, 100.0], tolerance=5)
    x0 = torch.tensor([[1.0], [0.0], [0.0]], dtype=torch.float64)
    line = gm.timeline("c-asgd", net, lambda x, agents, k: 0 * x, x0, testbed=bed, seconds=3.1)
    # At 1.35 s agent 1 takes half of x_0 = 1. At 2.25 s it takes half of the same message, and sends the 0.5 of before.
    assert line.paths[1][:6, 0].tolist() == [0.0, 0.0, 0.0, 0.5, 0.5, 0.75]
    # At 3 s agent 0 takes half of that; agent 1 has since been in an odd iteration.
    assert line.paths[0][:, 0].tolist() == [1.0, 1.0, 1.0, 0.75]


def test_an_update_of_all_keeps_what_is_known_of_links_that_it_does_not_use():
    net = gm.network("path:3", schedule=ListedGraphs(((0, 0, 1), (1, 1, 2))))
    of_0_and_1 = Rounds(net, 0).used(0).numpy()
    weights = WeightsOfRounds(net, [], torch.float64, Rounds(net, 0))
    weights.note_all(0, np.ones(4, dtype=bool))
    weights.note_all(1, np.zeros(4, dtype=bool))
    assert (weights.current == of_0_and_1).all()


def test_agents_that_wait_wait_for_their_partners_alone():
    """The slow agent meets agent 1 in the first round only: agent 1 waits 3 s there, and never again."""
    schedule = ListedGraphs(((0, 0, 1), (0, 2, 3), (0, 4, 5), (99, 1, 2), (99, 3, 4)))
    net = gm.network("path:6", schedule=schedule)
    bed = gm.testbed(agents=N, compute=[3.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    line = line_of("sync", net, bed, 12.0)
    assert [len(times) for times in line.times] == [4, 10, 12, 12, 12, 12]


# ---- bytes, absences, resuming


@pytest.mark.parametrize("schedule", CHANGING)
def test_only_links_in_use_carry_bytes(schedule):
    net = gm.network(f"complete:{N}", 2, schedule=schedule)
    run = simulation_of("d-asgd", net)
    for t in range(12):
        sent = run.step().sent.tolist()
        degrees = [sum(k == agent for _, k in pairs_of(net, 0, t)) for agent in range(N)]
        assert sent == [degree * 3 * 8 for degree in degrees]


def listed(tmp_path, text):
    file = tmp_path / "away.csv"
    file.write_text("time,agent,up\n" + text)
    return str(file)


@pytest.mark.parametrize("rule", [rule for rule in RULES if not gm.algorithm(rule).votes])
def test_an_agent_that_is_away_keeps_its_state_and_nobody_hears_it(rule, tmp_path):
    """Away from step 4 on, it might as well have any other state: the others go the same way."""
    schedule = listed(tmp_path, "4,5,0\n9,5,1\n")
    net = gm.network(f"complete:{N}", 0, schedule=schedule)
    waiting = gm.algorithm(rule).waits
    run = simulation_of(rule, net.changed(delay=gm.network("complete:6", 0 if waiting else 2).delay))
    states = [run.x]
    for _ in range(12):
        run.step()
        states.append(run.x)
    assert all(torch.equal(states[4][5], states[t][5]) for t in range(4, 10))
    assert not torch.equal(states[9][5], states[12][5])  # a worker moves when the server's next model arrives
    other = simulation_of(rule, net.changed(delay=gm.network("complete:6", 0 if waiting else 2).delay))
    for t in range(9):
        if t == 4:
            other.x[5] += 1.0
        other.step()
    assert torch.equal(other.x[:5], states[9][:5])


def test_who_returns_has_lost_what_it_held_and_hears_anew(tmp_path):
    net = gm.network(f"complete:{N}", np.full((N, N), 3), schedule=listed(tmp_path, "6,0,0\n12,0,1\n"))
    run = simulation_of("d-asgd", net)
    ages = [net.pattern.matrix(run.step().ages, -1) for _ in range(17)]
    assert {int(ages[t][0, 1]) for t in range(3, 6)} == {3}
    assert {int(age) for t in range(6, 12) for age in (*ages[t][0, 1:], *ages[t][1:, 0])} == {-1}
    assert [int(ages[t][0, 1]) for t in range(12, 17)] == [-1, -1, -1, 3, 3]  # sent to it from step 12 on
    assert [int(ages[t][1, 0]) for t in range(12, 17)] == [7, 8, 9, 3, 3]  # the others have kept what it sent in step 5


@pytest.mark.parametrize("schedule", CHANGING)
@pytest.mark.parametrize("rule", ["pc-asgd", "dm-asgd", "local-sgd/every=3"])
def test_a_resumed_run_goes_on_bit_for_bit(rule, schedule):
    net = gm.network(f"complete:{N}", "uniform:0,4", schedule=schedule)
    whole, first = simulation_of(rule, net), simulation_of(rule, net)
    for _ in range(25):
        whole.step()
    for _ in range(12):
        first.step()
    second = simulation_of(rule, net)
    second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
    for _ in range(13):
        second.step()
    assert torch.equal(whole.x, second.x)


@pytest.mark.parametrize("rule", ["c-asgd", "pc-asgd"])
def test_a_resumed_run_in_seconds_goes_on_bit_for_bit(rule):
    net = gm.network(f"complete:{N}", schedule="matching")
    bed = gm.testbed(agents=N, compute=[1.0, 1.3, 1.0, 0.7, 2.0, 1.0], latency=0.9)
    x0 = torch.from_numpy(SMOOTH.x0)

    def begin():
        return TimedSimulation(algorithm_from(rule), net, bed, TimedFunctionSource(gradient_at), x0, lr=lambda k: LR)

    def go_on(run, seconds):
        while run.advance(seconds) is not None:
            pass
        return run

    whole, first, second = go_on(begin(), 20.0), go_on(begin(), 9.3), begin()
    second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
    assert torch.equal(whole.x, go_on(second, 20.0).x)


# ---- what does not go


@pytest.mark.parametrize("rule", [name for name in algorithm_names() if gm.algorithm(name).totals])
def test_rules_with_running_totals_refuse_a_graph_that_changes(rule):
    with pytest.raises(gm.UserError, match="running totals"):
        path_of(rule, gm.network(f"complete:{N}", 1, schedule="matching"))


def test_absences_in_steps_do_not_go_with_a_testbed():
    with pytest.raises(gm.UserError, match="absences in steps, but a testbed has seconds"):
        line_of("d-asgd", gm.network("ring:6", schedule="churn:5,5"), gm.testbed(agents=N, compute=1.0), 3.0)


def test_processes_refuse_a_graph_that_changes():
    net = gm.network("ring:6", 1, schedule="matching")
    with pytest.raises(gm.UserError, match="'matching' needs the simulator"):
        check_rule(gm.algorithm("d-asgd"), net, plain=True)


def test_stability_is_of_a_fixed_graph():
    net = gm.network("ring:6", 1, schedule="matching", clusters="6")
    with pytest.raises(gm.UserError, match="no fixed update"):
        stability(gm.algorithm("d-asgd"), net, lr=0.1, curvature=1.0)
