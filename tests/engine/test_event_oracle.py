"""The oracle of runs in seconds: the step simulator's paths at equal speeds, and small cases worked out by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gm
from beds import assert_starts_as, beds, can_have_momentum, gradient_of, needs_complete_graph
from event_oracle import event_oracle
from gossamer.algorithms import algorithm_names
from worlds import World, algorithm_from

pytestmark = pytest.mark.filterwarnings("ignore::gossamer.StabilityWarning")

FURTHER = [
    "pc-asgd/theta=kalman",
    "pc-asgd/theta=uniform",
    "pc-asgd/predictor=trend/damping=0.2",
    "d-asgd/gradient_at=mixed",
    "local-sgd/every=3",
    "diloco/every=3",
]


@pytest.mark.parametrize("text", [*algorithm_names(), *FURTHER])
@settings(max_examples=3)
@given(st.integers(2, 5), st.sampled_from(["fixed", "matrix"]), st.sampled_from([0.0, 1.0]), st.integers(0, 99))
def test_equal_speeds_and_whole_delays_give_the_path_of_the_step_simulator(text, n, kind, density, seed):
    rule = algorithm_from(text)
    density = 1.0 if needs_complete_graph(rule) else density
    world = World(n=n, d=3, num_steps=16, kind=kind, largest=4, density=density, seed=seed)
    momentum = 0.9 if can_have_momentum(rule) and seed % 2 else 0.0
    story = event_oracle(
        rule,
        world.network,
        gradient_of(world.smooth),
        world.smooth.x0,
        lr=world.lr,
        compute=0.7,
        latency=0.0 if rule.waits else 0.7 * world.delays[0].T.clip(0),
        seconds=16.5 * 0.7,
        momentum=momentum,
        seed=world.seed,
    )
    expected = world.path(rule, momentum=momentum).numpy()
    np.testing.assert_allclose(np.stack(story.paths, axis=1), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["sync", "cdmsgd"])
@settings(max_examples=6)
@given(beds())
def test_rules_that_wait_go_the_same_way_at_any_speed(name, bed):
    rule = gm.algorithm(name)
    bed = bed.suited_to(rule)
    story = bed.truth(rule, bed.world.network.delay)
    assert_starts_as(story.paths, bed.synchronous_path(rule))


# ---- two agents, which mix half and half; lr is 1, and x goes down by g in each iteration


def two(rule, *, x0, g=(0.0, 0.0), clip_weights="rebuilt", **bed):
    network = gm.network("complete:2", clip_weights=clip_weights)
    return event_oracle(
        gm.algorithm(rule),
        network,
        lambda x, agents, iterations: np.array([[g[i]] for i in agents]),
        np.array([[x0[0]], [x0[1]]]),
        lr=1.0,
        **bed,
    )


def test_ages_count_own_iterations_that_ended_at_or_after_the_stamp():
    story = two("d-asgd", x0=(0.0, 8.0), g=(1.0, 0.0), compute=[2.0, 3.0], latency=1.0, seconds=9.0)
    # Agent 0 publishes at 2, 4, 6, 8, and is heard at 3, 5, 7, 9; agent 1 at 3, 6, 9, and is heard at 4, 7, 10.
    assert story.times[0].tolist() == [2, 4, 6, 8] and story.times[1].tolist() == [3, 6, 9]
    # At 6 agent 0 still holds the message of 3, and has ended iterations at 4 and 6 since; at 8 that of 6.
    assert story.ages[0] == [{}, {1: 0}, {1: 1}, {1: 1}]
    assert story.ages[1] == [{0: 0}, {0: 0}, {0: 0}]  # the messages of 2, 4 and 8, that of 8 arrives at 9 itself
    # alone: 0 - 1; (-1 + 8)/2 - 1; (2.5 + 8)/2 - 1; (4.25 + 4)/2 - 1
    assert story.paths[0][:, 0].tolist() == [0, -1, 2.5, 4.25, 3.125]
    # (8 + 0)/2; (4 - 1)/2; (1.5 + 4.25)/2
    assert story.paths[1][:, 0].tolist() == [8, 4, 1.5, 2.875]


def test_the_newest_message_waits_for_a_busy_link_and_replaces_one_that_waits():
    busy = {"x0": (0.0, 0.0), "g": (-1.0, 0.0), "compute": [1.0, 10.0], "bandwidth": 40.0, "message_bytes": 100}
    # Agent 0 is at k when its iteration k begins, and publishes that at k + 1. Sending takes 2.5 s: state 0 is sent
    # from 1 to 3.5, then 2, which replaced 1, to 6. At 6 state 4 begins, which waited, and not 5, which is published
    # then. It is sent at 8.5 and arrives at 10.
    story = two("d-asgd", latency=1.5, seconds=10.0, **busy)
    assert story.ages[1] == [{0: 0}] and story.paths[1][:, 0].tolist() == [0, 2]
    # A little later agent 1 holds state 2 only.
    assert two("d-asgd", latency=1.6, seconds=10.0, **busy).paths[1][:, 0].tolist() == [0, 1]


def test_older_messages_than_max_age_are_dropped():
    story = two("d-asgd", x0=(0.0, 8.0), compute=[10.0, 1.0], seconds=13.0, max_age=2)
    assert story.ages[1] == [{}] * 9 + [{0: 0}, {0: 1}, {0: 2}, {}]
    assert story.paths[1][9:, 0].tolist() == [8, 4, 2, 1, 1]  # half of the distance to 0, until that is dropped
    assert story.paths[0][:, 0].tolist() == [0, 4]  # published at 10 without latency: it counts at 10


def test_running_totals_are_never_dropped():
    story = two("dga", x0=(0.0, 8.0), compute=[10.0, 1.0], seconds=14.0, max_age=2)
    assert story.ages[1][9:] == [{0: 0}, {0: 1}, {0: 2}, {0: 2}, {0: 2}]


def test_ages_up_to_the_tolerance_are_current():
    story = two("c-asgd", x0=(0.0, 8.0), compute=[10.0, 1.0], seconds=13.0, tolerance=1)
    assert story.paths[1][9:, 0].tolist() == [8, 4, 2, 2, 2]  # ages 0 and 1 are mixed, 2 and 3 are clipped


def test_a_link_counts_for_clipping_when_both_ends_are_current_at_their_newest_updates():
    calm = {"x0": (0.0, 8.0), "compute": [1.0, 2.0]}
    # At 2 both take what the other publishes then; at 3 agent 0 is as if alone.
    assert two("c-asgd", seconds=3.0, **calm).paths[0][:, 0].tolist() == [0, 0, 4, 4]
    # With a tolerance of 1 it holds 8 at 3 still, and agent 1 was current at its newest update, at 2.
    assert two("c-asgd", seconds=3.0, tolerance=1, **calm).paths[0][:, 0].tolist() == [0, 0, 4, 6]
    # Agent 1 hears nothing in time, so that the link is not rebuilt though agent 0 is current.
    slow = {"latency": [[0.0, 5.0], [0.0, 0.0]], "seconds": 2.0}  # from 0 to 1
    assert two("c-asgd", **calm, **slow).paths[0][:, 0].tolist() == [0, 0, 0]
    assert two("c-asgd", **calm, **slow, clip_weights="renormalised").paths[0][:, 0].tolist() == [0, 0, 4]


def test_a_rule_that_waits_updates_when_the_last_message_of_the_iteration_is_there():
    story = two(
        "sync", x0=(0.0, 8.0), g=(1.0, -3.0), compute=[1.0, 3.0], latency=[[0.0, 1.0], [2.0, 0.0]], seconds=12.0
    )
    # Iterations end at 1, 6, 9 and at 3, 6, 10; agent 0 hears of them at 5, 8, 12, agent 1 at 2, 7, 10.
    assert story.times[0].tolist() == [5, 8, 12] and story.times[1].tolist() == [3, 7, 10]
    assert story.paths[0][:, 0].tolist() == [0, 3, 4, 5] and story.paths[1][:, 0].tolist() == [8, 7, 8, 9]


def test_messages_of_a_rule_that_waits_queue_for_a_busy_link():
    bandwidth = [[np.inf, 25.0], [np.inf, np.inf]]  # from 0 to 1: 100 bytes take 4 s
    story = two("sync", x0=(0.0, 8.0), compute=1.0, bandwidth=bandwidth, message_bytes=100, seconds=13.0)
    # Agent 0 publishes at 1, 2, 7: sent from 1, 5 and 9 on. Agent 1 publishes at 1, 6, 10.
    assert story.times[0].tolist() == [1, 6, 10] and story.times[1].tolist() == [5, 9, 13]


def test_a_rule_that_waits_takes_the_message_of_its_own_iteration_though_a_newer_one_is_there():
    story = event_oracle(
        gm.algorithm("sync"),
        gm.network("path:3"),  # a third of each neighbour
        lambda x, agents, iterations: 0 * x,
        np.array([[0.0], [6.0], [12.0]]),
        lr=1.0,
        compute=[1.0, 1.0, 5.0],
        seconds=5.0,
    )
    # Agent 0 ends its next iteration at 2, at state 2, while agent 1 waits for agent 2 until 5.
    assert [times.tolist() for times in story.times] == [[1], [5], [5]]
    np.testing.assert_allclose([path[-1, 0] for path in story.paths], [2, 6, 10], rtol=1e-15)
