"""How many steps a sender has taken since its message: its gradient is carried forward by them, not by the age."""

from bisect import bisect_right
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gm
from gossamer.algorithms import Late, Own
from gossamer.algorithms.sender_steps import Published, estimate_sender_steps
from gossamer.network import LinkMatrix
from gossamer.testbed.compute_time import ComputeTime, IterationClock
from worlds import algorithm_from

pytestmark = pytest.mark.filterwarnings("ignore::gossamer.StabilityWarning")

LR, LAM, THETA, LAG = 0.1, 0.5, 0.4, 3.0
G = torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64)  # of each of two agents, everywhere
SECOND = 10**9


def run(rule, compute, latency, seconds=18.0):
    bed = gm.testbed(agents=2, compute=compute, latency=latency)
    start = torch.tensor([[0.3, 1.0], [-1.0, 0.2]], dtype=torch.float64)
    options = {"lr": LR, "testbed": bed, "seconds": seconds}
    return gm.timeline(algorithm_from(rule), "complete:2", lambda x, agents, _: G[agents], start, **options)


@dataclass
class Held:
    """What agent i holds at its update u, by the times of a run alone; nanoseconds."""

    sent: int  # the iteration of the message
    age: int
    now: int
    stamps: list[int]  # when the sender's iterations ended

    @property
    def counted(self):
        """The iterations of the sender that ended after the message and by now."""
        return bisect_right(self.stamps, self.now) - 1 - self.sent


def held(line, latency, i, u):
    own, stamps = ([round(end * SECOND) for end in line.times[agent]] for agent in (i, 1 - i))
    sent = bisect_right(stamps, own[u] - round(latency * SECOND)) - 1
    age = sum(end >= stamps[sent] for end in own[: u + 1]) - 1
    return Held(sent, age, own[u], stamps) if sent >= 0 else None


def moved_by_gradient(line, i, u, it, steps, lam, g=None):
    """Minus eta times `steps` times the mean of g + lam g g (x_i(r) - x_i(then)) over the receiver's steps since."""
    g, own = G[1 - i] if g is None else g, line.paths[i]
    drift = own[u - it.age : u].mean(dim=0) - own[u - it.age]
    return -LR * steps * (g + lam * g * g * drift)


def moved_by_own_gradient(line, i, u, it, steps, lam):
    return moved_by_gradient(line, i, u, it, steps, lam, g=G[i])


def moved_consistently(line, i, u, it, steps, lam):
    g, moved = G[1 - i], torch.zeros(2, dtype=torch.float64)
    for _ in range(steps):  # by its own predicted displacement, one step after the other
        moved = moved - LR * (g + LAM * g * g * moved)
    return moved


def moved_by_trend(line, i, u, it, steps, lam):
    path = line.paths[1 - i]
    smooth = path[0]
    for x in path[: it.sent]:
        smooth = smooth + (x - smooth) / (1 + LAG)
    return steps * (path[it.sent] - smooth) / (1 + LAG)


RULES = {
    "p-asgd/lam=0": (1.0, moved_by_gradient, 0.0),
    f"p-asgd/lam={LAM}": (1.0, moved_by_gradient, LAM),
    f"p-asgd/lam={LAM}/source=recompute": (1.0, moved_by_own_gradient, LAM),
    f"p-asgd/lam={LAM}/self_consistent=true": (1.0, moved_consistently, LAM),
    f"pc-asgd/theta={THETA}/lam={LAM}": (THETA, moved_by_gradient, LAM),
    f"pc-asgd/theta={THETA}/predictor=trend/lag={LAG}": (THETA, moved_by_trend, LAM),
}


def check_predictions(rule, line, latency, steps_of):
    """Compare updates with x_i <- theta (x_i + prediction of x_k) / 2 + (1 - theta) x_i - eta g_i; count them."""
    theta, moved, lam = RULES[rule]
    late = 0
    for i in (0, 1):
        for u in range(len(line.times[i])):
            it, x = held(line, latency, i, u), line.paths[i][u]
            if it is None or it.age == 0:  # nothing is predicted
                continue
            late, predicted = late + 1, line.paths[1 - i][it.sent] + moved(line, i, u, it, steps_of(it), lam)
            expected = theta * (x + predicted) / 2 + (1 - theta) * x
            torch.testing.assert_close(line.paths[i][u + 1], expected - LR * G[i], rtol=1e-11, atol=1e-11)
    return late


@pytest.mark.parametrize("rule", RULES)
def test_a_sender_twice_as_fast_is_carried_forward_twice_as_far(rule):
    line = run(rule, [1.0, 2.0], 4.0)
    at = held(line, 4.0, 1, 7)  # agent 1, at 16 s, holds what agent 0 has sent at 12 s
    assert (at.age, at.counted) == (2, 4)
    assert check_predictions(rule, line, 4.0, lambda it: it.counted) > 10


@pytest.mark.parametrize("rule", RULES)
@settings(deadline=None, max_examples=5)
@given(st.lists(st.sampled_from([0.5, 0.7, 1.0, 1.5, 4.0]), min_size=2, max_size=2), st.sampled_from([0.3, 2.0, 4.6]))
def test_a_sender_is_carried_forward_by_the_steps_that_it_has_taken(rule, compute, latency):
    check_predictions(rule, run(rule, compute, latency), latency, lambda it: it.counted)


@dataclass(frozen=True)
class InStep(ComputeTime, IterationClock):
    """Iterations of several lengths, the same for all agents, so that all update at once."""

    lengths: tuple[int, ...]

    def clock(self, num_agents, seed, step_seconds=1.0):
        return self

    def mean(self, num_agents):
        return torch.full((num_agents,), sum(self.lengths) / len(self.lengths), dtype=torch.float64).numpy()

    def end(self, agent, iteration, begin):
        return begin + self.lengths[iteration % len(self.lengths)] * SECOND


@pytest.mark.parametrize("rule", RULES)
@settings(deadline=None, max_examples=3)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=4))
def test_agents_that_update_at_once_estimate_from_the_last_two_messages(rule, lengths):
    line = run(rule, InStep(tuple(lengths)), 5.0)

    def steps_of(it):
        before = it.stamps[it.sent - 1] if it.sent else 0
        return (it.now - it.stamps[it.sent]) // (it.stamps[it.sent] - before)

    check_predictions(rule, line, 5.0, steps_of)


@pytest.mark.parametrize("rule", ["p-asgd", "pc-asgd/theta=0.3", "pc-asgd/predictor=trend", "pc-asgd/theta=kalman"])
def test_at_equal_speeds_it_is_the_age(rule):
    line = run(rule, 0.7, 2.1, seconds=0.7 * 20.5)
    start = torch.stack([path[0] for path in line.paths])
    path = gm.trajectory(algorithm_from(rule), gm.network("complete:2", delay=3), lambda x, t: G, start, LR, 20)
    torch.testing.assert_close(torch.stack(line.paths, dim=1), path, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "options", [{}, {"self_consistent": True}, {"horizon": "mean"}, {"lam_form": "squared"}], ids=str
)
def test_the_compensation_is_the_weighted_sum_of_what_hindsight_notes_for_each_link(options):
    rows, rule = torch.randn(6, 4, 5, dtype=torch.float64), gm.algorithm("p-asgd", **options)
    weights = gm.network("complete:4").link_weights
    steps = LinkMatrix(weights.links, torch.arange(12).remainder(5).double())  # a receiver's senders differ in speed
    late = Late(3, weights, {"x": rows[0], "v": rows[1], "g": rows[2]}, {"x": rows[3]}, rows[4], sender_steps=steps)
    own = Own(rows[5], rows[2], rows[1], LR, 9, (5,))
    each = rule.each_compensation(own, late, torch.arange(5)) * weights.values[:, None]
    total = torch.zeros(4, 5, dtype=torch.float64).index_add_(0, weights.links.receivers, each)
    torch.testing.assert_close(rule.compensation(own, late), total, rtol=1e-12, atol=1e-12)


@given(st.integers(1, 50), st.integers(0, 30), st.integers(1, 9), st.integers(0, 300))
def test_the_estimate_counts_the_ends_of_equal_iterations(length, first, between, since):
    before, kept = Published(first, first * length), Published(first + between, (first + between) * length)
    now = kept.time + since
    ended = sum(kept.time < k * length <= now for k in range(first + between + 302))
    assert estimate_sender_steps(now, kept, before, age=-5) == ended


def test_what_is_not_known_is_the_age():
    held = Published(4, 40)
    assert estimate_sender_steps(90, held, None, age=3) == 3
    for before in (Published(4, 20), Published(2, 40), Published(6, 30)):  # these tell no speed
        assert estimate_sender_steps(90, held, before, age=3) == 3
    assert estimate_sender_steps(10, held, Published(3, 30), age=0) == 0  # sent after `now`
