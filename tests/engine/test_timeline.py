"""`gm.timeline`: a rule in seconds, against the oracle's events, the step simulator and what no run may do."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gm
from beds import COMPUTE, Bed, InTurn, assert_starts_as, beds, can_have_momentum, gradient_of, needs_complete_graph
from gossamer.algorithms import algorithm_names
from worlds import World, algorithm_from

pytestmark = pytest.mark.filterwarnings("ignore::gossamer.StabilityWarning")

EVERY = [name for name in algorithm_names() if not gm.algorithm(name).votes]
FURTHER = [
    "pc-asgd/theta=kalman",
    "pc-asgd/theta=uniform",
    "pc-asgd/predictor=trend/damping=0.2",
    "p-asgd/source=recompute",
    "p-asgd/self_consistent=true",
    "d-asgd/gradient_at=mixed",
    "local-sgd/every=3",
    "diloco/every=3",
]
PLAIN = ["d-asgd", "c-asgd", "p-asgd", "pc-asgd", "dm-asgd"]  # synchronous SGD where nothing is late


def assert_same(line, times, paths):
    for i, (of_agent, path) in enumerate(zip(times, paths, strict=True)):
        np.testing.assert_allclose(np.asarray(line.times[i]), of_agent, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(np.asarray(line.paths[i]), path, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("text", [*EVERY, *FURTHER])
@settings(max_examples=4)
@given(beds())
def test_goes_where_the_oracle_goes(text, bed):
    rule = algorithm_from(text)
    bed = bed.suited_to(rule)
    line = bed.line(rule)
    story = bed.truth(rule, line.network.delay)
    assert_same(line, story.times, story.paths)


# ---- the step simulator


@pytest.mark.parametrize("text", EVERY)
@settings(max_examples=2)
@given(st.integers(2, 5), st.sampled_from(["fixed", "matrix"]), st.sampled_from(COMPUTE), st.integers(0, 99))
def test_equal_speeds_and_whole_delays_give_the_path_of_the_step_simulator(text, n, kind, compute, seed):
    rule = algorithm_from(text)
    world = World(n=n, d=3, num_steps=16, kind=kind, largest=4, density=float(needs_complete_graph(rule)), seed=seed)
    local = {"momentum": 0.9 if can_have_momentum(rule) and seed % 2 else 0.0}
    latency = np.zeros((n, n)) if rule.waits else compute * world.delays[0].T.clip(0)
    bed = gm.testbed(agents=n, compute=compute, latency=latency)
    given = {"lr": world.lr, "testbed": bed, "seconds": 16.5 * compute, "seed": world.seed} | local
    line = gm.timeline(rule, world.network, gradient_of(world.smooth), world.smooth.x0, **given)
    path = world.path(rule, **local).numpy()
    assert_same(line, [compute * np.arange(1, 17)] * n, path.swapaxes(0, 1))


@pytest.mark.parametrize("text", PLAIN)
def test_where_nothing_is_late_all_are_synchronous(text):
    world = World(n=5, d=3, num_steps=12, density=0.5, seed=3, num_clusters=None, largest=0)
    bed = gm.testbed(agents=5, compute=0.3)
    line = gm.timeline(
        text, world.network, gradient_of(world.smooth), world.smooth.x0, lr=world.lr, testbed=bed, seconds=3.6
    )
    assert_same(line, [0.3 * np.arange(1, 13)] * 5, world.path("sync").numpy().swapaxes(0, 1))


@pytest.mark.parametrize("name", ["sync", "cdmsgd"])
@settings(max_examples=8)
@given(beds())
def test_rules_that_wait_go_the_same_way_at_any_speed(name, bed):
    rule = gm.algorithm(name)
    bed = bed.suited_to(rule)
    assert_starts_as(bed.line(rule).paths, bed.synchronous_path(rule))


def test_agents_remember_who_was_current_when_all_moved_together():
    bed = gm.testbed(agents=2, compute=InTurn(((1.0,), (1.0, 5.0))), tolerance=1)
    line = gm.timeline("c-asgd", "complete:2", nothing, [[0.0], [8.0]], testbed=bed, seconds=4.0)
    # At 1 both mix. At 2 agent 0 holds 8 still, and mixes again because agent 1 was current at its newest update.
    assert np.asarray(line.paths[0])[:, 0].tolist() == [0, 4, 6, 6, 6]


# ---- laws


@settings(max_examples=15)
@given(beds(), st.sampled_from(PLAIN))
def test_an_agent_that_never_waits_makes_as_many_updates_as_fit(bed, text):
    line = bed.line(algorithm_from(text))
    for i in range(bed.n):
        ends = np.cumsum([bed.times.seconds(i, k) for k in range(100)])
        ends = ends[ends < bed.seconds + 1e-9]
        np.testing.assert_allclose(np.asarray(line.times[i]), ends, rtol=1e-12)
        assert len(line.paths[i]) == len(ends) + 1
        np.testing.assert_array_equal(np.asarray(line.paths[i])[0], bed.world.smooth.x0[i])


@settings(max_examples=15)
@given(beds())
def test_agents_that_wait_are_never_faster_alone_nor_more_than_a_path_ahead(bed):
    line = bed.line(gm.algorithm("sync"))
    for i in range(bed.n):
        times = np.concatenate([[0.0], np.asarray(line.times[i])])
        alone = [bed.times.seconds(i, k) for k in range(len(times) - 1)]
        assert (np.diff(times) >= np.array(alone) - 1e-9).all()
        for k in np.flatnonzero(bed.world.network.links.numpy()[i]):
            assert len(times) <= len(line.times[k]) + 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wordy(type(gm.algorithm("sync"))):
    """Synchronous SGD that sends its gradient as well, and makes nothing of it."""

    @property
    def message(self):
        return ("x", "g")


@settings(max_examples=15)
@given(beds())
def test_a_rule_that_waits_and_sends_less_is_never_later(bed):
    less, more = bed.line(gm.algorithm("sync")), bed.line(Wordy())
    for i in range(bed.n):
        short, long = np.asarray(less.times[i]), np.asarray(more.times[i])
        assert len(short) >= len(long) and (short[: len(long)] <= long).all()


def test_bytes_take_time_where_the_bandwidth_is_small():
    bed = Bed(2, ((1.0,), (1.0,)), (0.0,) * 4, (24.0,) * 4, seconds=10.0)  # a state of 24 bytes takes a second
    assert np.asarray(bed.line(gm.algorithm("sync")).times[0]).tolist() == [2, 4, 6, 8, 10]
    assert np.asarray(bed.line(Wordy()).times[0]).tolist() == [3, 6, 9]


@pytest.mark.parametrize("text", ["pc-asgd/theta=uniform", "ad-psgd", "sdm-asgd"])
@settings(max_examples=3)
@given(beds())
def test_the_same_seed_gives_the_same_bytes(text, bed):
    rule = algorithm_from(text)
    bed = bed.suited_to(rule)
    one, other = bed.line(rule), bed.line(rule)
    for i in range(bed.n):
        assert np.asarray(one.times[i]).tobytes() == np.asarray(other.times[i]).tobytes()
        assert np.asarray(one.paths[i]).tobytes() == np.asarray(other.paths[i]).tobytes()


def test_another_seed_draws_other_numbers():
    bed = Bed(4, ((1.0,), (1.4,), (1.0,), (2.0,)), (1.0,) * 16, (np.inf,) * 16)
    one, other = (bed.line(algorithm_from("pc-asgd/theta=uniform"), seed=seed) for seed in (1, 2))
    assert any(not np.array_equal(np.asarray(one.paths[i]), np.asarray(other.paths[i])) for i in range(4))


def test_the_gradient_is_asked_for_at_the_state_where_the_iteration_began():
    asked = {}

    def gradient(x, agents, iterations):
        asked.update(
            {(int(i), int(k)): np.array(row) for i, k, row in zip(agents, iterations, np.asarray(x), strict=True)}
        )
        return 0.1 * np.asarray(x)

    bed = gm.testbed(agents=3, compute=[1.0, 1.5, 0.7], latency=1.3)
    line = gm.timeline("d-asgd", "ring:3", gradient, np.arange(6.0).reshape(3, 2), testbed=bed, seconds=6.0)
    for i in range(3):
        for k in range(len(line.times[i])):
            np.testing.assert_array_equal(asked[i, k], np.asarray(line.paths[i])[k])


# ---- bad input

X0 = np.zeros((3, 2))


def nothing(x, agents, iterations):
    return np.zeros_like(np.asarray(x))


def run(network="ring:3", algorithm="d-asgd", gradient=nothing, x0=X0, seconds=5.0, lr=0.1, **bed):
    bed = gm.testbed(**{"agents": 3, **bed})
    return gm.timeline(algorithm, network, gradient, x0, lr=lr, testbed=bed, seconds=seconds)


ONE_NAN = [[1.0, np.nan, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
BAD = {
    "compute of another size": {"compute": [1.0, 2.0]},
    "compute of zero": {"compute": 0.0},
    "negative compute": {"compute": [1.0, -1.0, 1.0]},
    "compute without a number": {"compute": np.nan},
    "endless compute": {"compute": np.inf},
    "latency of another size": {"latency": np.ones((2, 2))},
    "negative latency": {"latency": -1.0},
    "a link without latency": {"latency": ONE_NAN},
    "endless latency": {"latency": np.inf},
    "bandwidth of another size": {"bandwidth": np.ones((3, 4))},
    "negative bandwidth": {"bandwidth": -10.0},
    "no bandwidth": {"bandwidth": 0.0},
    "a link without bandwidth": {"bandwidth": ONE_NAN},
    "negative tolerance": {"tolerance": -1},
    "max_age of zero": {"max_age": 0},
    "no agents": {"agents": 0},
    "more agents than the network": {"agents": 4},
    "no seconds": {"seconds": 0.0},
    "negative seconds": {"seconds": -1.0},
    "seconds without a number": {"seconds": np.nan},
    "endless seconds": {"seconds": np.inf},
    "x0 of another size": {"x0": np.zeros((2, 2))},
    "lr of zero": {"lr": 0.0},
    "gradient of another shape": {"gradient": lambda x, agents, iterations: np.zeros((1, 5))},
    "a rule that votes": {"algorithm": "pc-asgd/theta=pv/scope=network"},
    "an unknown rule": {"algorithm": "e-asgd"},
    "a server without a link to every agent": {"algorithm": "asgd", "network": "ring:4", "agents": 4},
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_line(what):
    with pytest.raises(gm.UserError) as caught:
        run(**{"x0": np.zeros((4, 2))} | BAD[what] if BAD[what].get("agents") == 4 else BAD[what])
    assert "\n" not in str(caught.value)


def test_good_input_of_the_same_kind_is_none():
    run()
    run(bandwidth=[[0.0, 9.0, 9.0], [9.0, np.nan, 9.0], [9.0, 9.0, 0.0]])  # nobody sends to itself
