"""How old a message is, in own iterations, and what an agent does with one that is current, late, or no more."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gm
from gossamer.algorithms.steps import weigh
from gossamer.network import NOTHING
from gossamer.runtime.agent import Agent
from gossamer.runtime.environment import Run
from gossamer.runtime.message import Stamp
from gossamer.runtime.node import Node
from gossamer.runtime.received_messages import StepClock
from gossamer.runtime.transport.base import Letter, Transport
from worlds import algorithm_from

SECOND = 10**9  # nanoseconds

# ---- ages from clocks


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(0, 1600), st.integers(2, 12))
def test_an_age_counts_the_own_iterations_that_were_completed_since(pauses, taken, depth):
    times = [sum(pauses[: i + 1]) for i in range(len(pauses))]
    clock = StepClock(depth)
    for step, at in enumerate(times):
        clock.add(step, at)
    # An iteration lies between two snapshots; one that began at or after the message was taken counts as completed.
    expected = sum(taken <= at for at in times[:-1])
    assert clock.age(taken) == (expected if expected < depth else None)


def test_an_agent_that_has_just_begun_finds_nothing_older_than_its_start():
    clock = StepClock(8)
    clock.add(500, 1000)
    assert clock.age(3) == 0
    clock.add(501, 1010)
    assert clock.age(3) == 1 and clock.age(1005) == 0


# ---- one agent among scripted peers


class Script(Transport):
    """Peers that say what the test puts into `letters`."""

    def __init__(self) -> None:
        super().__init__()
        self.letters: dict[int, Letter] = {}
        self.published: list[tuple[Stamp, list[torch.Tensor]]] = []

    def open(self, length):
        self.length = length

    def publish(self, stamp, parts):
        self.published.append((stamp, [part.clone() for part in parts]))

    def latest(self, peer):
        return self.letters.get(peer)

    def at(self, peer, sequence):
        return None

    def close(self):
        pass


class Hands:
    """Those of a clock that only the test moves, by which an agent sees how long its neighbours are silent."""

    def __init__(self, monkeypatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("gossamer.runtime.received_messages.time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.fixture
def hands(monkeypatch):
    return Hands(monkeypatch)


def node_with(script: Script, text: str = "d-asgd", agents: int = 4, **run) -> Node:
    # No neighbour is dead because the machine stood still, unless a test says after how long.
    run = {"deadline": 1000.0, "meet": 0.0, **run}
    agent = Agent(Run(agents=agents, run=f"ages-{time.monotonic_ns()}", **run), gm.network(f"complete:{agents}"))
    agent._connection = replace(agent._connection, transport=script, book=None, server=None)
    return Node(agent, algorithm_from(text), torch.zeros(1, 2, dtype=torch.float64), segments=(2,), plain=True)


def say(
    script: Script,
    node: Node,
    peer: int,
    x: float,
    at: int | None = None,
    step: int = 0,
    heard=None,
    incarnation: int = 1,
    **changes,
) -> None:
    number, everyone = node.received._layout.number, range(node.network.num_agents)
    values = torch.full((node.received._layout.length // 8,), x, dtype=torch.float64)
    stamp = Stamp(
        peer,
        incarnation,
        step,
        time.monotonic_ns() if at is None else at,
        number,
        frozenset(everyone if heard is None else heard),
    )
    script.letters[peer] = Letter(stamp, values.view(torch.uint8), **changes)


def take_step(node: Node, x: float = 0.0) -> "gm.runtime.agent.StepResult":
    zero = torch.zeros(1, 2, dtype=torch.float64)
    return node.step(zero + x, zero, zero, 0.1)


def test_a_dead_neighbour_is_left_out_and_the_row_still_sums_to_one(hands):
    script = Script()
    node = node_with(script, deadline=0.05)
    for peer in (1, 2, 3):
        say(script, node, peer, 1.0)
    assert torch.allclose(take_step(node).x, torch.tensor(0.75, dtype=torch.float64))
    hands.now += 0.06
    say(script, node, 1, 1.0, step=1)  # the others are silent for longer than the deadline
    done = take_step(node)
    assert done.ages == {1: 0, 2: NOTHING, 3: NOTHING}
    assert torch.allclose(done.x, torch.tensor(0.5, dtype=torch.float64))  # 1/4 own, 1/4 of it: one half each


def test_the_deadline_adapts_to_a_neighbours_usual_interval(hands):
    script = Script()
    node = node_with(script, deadline="auto")
    assert node.received.deadline_of(1) == 2.0
    for step in range(3):
        say(script, node, 1, 1.0, step=step)
        take_step(node)
        hands.now += 0.15
    assert node.received.deadline_of(1) == pytest.approx(20 * 0.15)


def test_tolerance_says_what_is_current_and_max_age_what_is_forgotten():
    script = Script()
    node = node_with(script, "c-asgd", tolerance=2, max_age=4)
    seen = []
    for t in range(8):
        if t == 0:
            for peer in (1, 2, 3):
                say(script, node, peer, 1.0)
        done = take_step(node)
        seen.append((done.ages[1], float(done.x[0, 0])))
    # C-ASGD mixes current messages only: ages 0, 1 and 2 here, and clips older ones.
    assert [age for age, _ in seen] == [0, 1, 2, 3, 4, *[NOTHING] * 3]
    assert [x for _, x in seen] == [0.75] * 3 + [0.0] * 5


def test_the_clipping_weights_count_links_that_are_current_both_ways():
    script = Script()
    node = node_with(script, "c-asgd")
    for peer in (1, 2, 3):
        say(script, node, peer, 1.0, heard=None if peer == 1 else ())  # 2 and 3 do not hear this agent
    # So the link with agent 1 is the only one of both its ends: its weight is 1 / (1 + max(1, 1)).
    assert torch.allclose(take_step(node).x, torch.tensor(0.5, dtype=torch.float64))


def test_a_newer_incarnation_is_news_though_its_iteration_is_lower():
    script = Script()
    node = node_with(script, agents=2)
    say(script, node, 1, 1.0, step=50)
    take_step(node)
    letter = script.letters[1]
    again = Stamp(1, 2, 3, time.monotonic_ns(), letter.stamp.layout)
    script.letters[1] = Letter(again, torch.full((2,), 5.0, dtype=torch.float64).view(torch.uint8))
    assert torch.allclose(take_step(node).x, torch.tensor(2.5, dtype=torch.float64))


@pytest.mark.parametrize("broken", ["layout", "length"])
def test_a_message_of_another_layout_is_dropped_and_counted(broken):
    script = Script()
    node = node_with(script, agents=2)
    stamp = Stamp(1, 1, 0, time.monotonic_ns(), node.received._layout.number + (broken == "layout"))
    script.letters[1] = Letter(stamp, torch.zeros(16 + 8 * (broken == "length"), dtype=torch.uint8))
    assert take_step(node).ages == {1: NOTHING} and script.counts["malformed"] == 1


def test_a_torn_message_is_read_again_and_never_used():
    script = Script()
    node = node_with(script, agents=2)
    answers = iter([False, True])
    say(script, node, 1, 1.0, intact=lambda: next(answers))
    assert torch.allclose(take_step(node).x, torch.tensor(0.5, dtype=torch.float64)) and script.counts["torn"] == 1
    say(script, node, 1, 9.0, step=1, intact=lambda: False)
    done = take_step(node)
    assert done.ages == {1: NOTHING} and torch.equal(done.x, torch.zeros(1, 2, dtype=torch.float64))


def test_a_state_that_is_not_finite_is_never_published():
    script = Script()
    node = node_with(script, agents=2)
    take_step(node, x=1.0)
    take_step(node, x=float("nan"))
    take_step(node, x=float("inf"))
    assert [stamp.sequence for stamp, _ in script.published] == [0] and script.counts["not finite"] == 2


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 6), st.data())
def test_weights_sum_to_one_whoever_is_silent(n, data):
    network = gm.network(f"complete:{n}")
    flat = data.draw(st.lists(st.sampled_from("fls"), min_size=n * n, max_size=n * n))
    kinds = [flat[i * n : (i + 1) * n] for i in range(n)]
    reliable = torch.tensor([[k == "f" for k in row] for row in kinds]) & network.links
    late = torch.tensor([[k == "l" for k in row] for row in kinds]) & network.links
    weights = weigh(network, network.pattern.at(reliable), network.pattern.at(late))
    heard = weights.own + weights.fresh.sum(dim=1) + (network.W * late).sum(dim=1)
    torch.testing.assert_close(heard / weights.mass, torch.ones(n, dtype=torch.float64))
    torch.testing.assert_close(weights.clip_own + weights.clip_fresh.sum(dim=1), torch.ones(n, dtype=torch.float64))


# ---- the steps that a sender has taken


def carried(monkeypatch, told, ends, offset=0):
    """Let agent 0 of 2 end its iterations at these seconds; return the age and the sender's steps at each end.

    `told` has messages by the end at which they are there: (second of its sender, iteration, what else is said). Each
    says x = g = 1, so that P-ASGD with no gradient and a learning rate of 0.1 goes to (1 - 0.1 steps) / 2.
    """
    clock = SimpleNamespace(monotonic_ns=lambda: clock.now * SECOND, monotonic=time.monotonic)
    monkeypatch.setattr("gossamer.runtime.node.time", clock)
    script, found = Script(), []
    script.offset = lambda peer: offset * SECOND
    node = node_with(script, "p-asgd/lam=0", agents=2)
    for clock.now in ends:
        if clock.now in told:
            at, step, changes = told[clock.now]
            say(script, node, 1, 1.0, at=at * SECOND, step=step, **changes)
        done = take_step(node)
        found.append((done.ages[1], round((1 - 2 * float(done.x[0, 0])) / 0.1)))
    return found


@pytest.mark.parametrize("offset", [0, 100])
def test_a_neighbours_steps_follow_from_its_last_two_messages(monkeypatch, offset):
    told = {4: (2 - offset, 10, {}), 8: (4 - offset, 14, {})}  # two iterations a second; the agent's takes two seconds
    # Of one message alone the age is told; with the second one, 4 s old at 8 s, 8 steps.
    assert carried(monkeypatch, told, range(0, 14, 2), offset)[3:] == [(2, 2), (2, 8), (3, 12), (4, 16)]


def test_a_neighbour_has_taken_no_step_before_the_step_ends(monkeypatch):
    told = {10: (2, 0, {}), 11: (9, 1, {})}  # seven seconds an iteration
    found = carried(monkeypatch, told, range(20))
    assert found[11:] == [(age, int(age >= 7)) for age in range(2, 11)]


@pytest.mark.parametrize("changes", [{"incarnation": 2}, {"age": 3}], ids=["restarted", "delays in steps"])
def test_where_two_messages_tell_no_speed_the_steps_are_the_age(monkeypatch, changes):
    found = carried(monkeypatch, {4: (2, 10, {}), 8: (4, 14, changes)}, range(0, 14, 2))
    assert [steps for _, steps in found[3:]] == [age for age, _ in found[3:]]
