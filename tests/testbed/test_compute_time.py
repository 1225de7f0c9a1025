"""Iteration times: distributions, slow stretches, and that they are functions of seed, agent and iteration."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gm
from gossamer.testbed.markov_slowdown import MarkovSlowdown, SlowAndFast
from link_play import refusal

SECOND = 10**9


def times(bed, count, agent=0, seed=0):
    clock = bed.iterations(seed)
    return np.array([clock.end(agent, number, 0) for number in range(count)]) / SECOND


def bed(**settings):
    return gm.testbed(agents=3, **settings)


def test_constant_times_are_exact_whatever_the_begin():
    clock = bed(compute=[1.0, 2.7, "50ms"], step_seconds=0.2).iterations(0)
    assert [clock.end(agent, 7, 10**15) - 10**15 for agent in range(3)] == [200_000_000, 540_000_000, 10_000_000]


def test_lognormal_times_have_their_mean_and_sigma():
    found = times(bed(compute="lognormal:2,0.5"), 20_000)
    assert found.mean() == pytest.approx(2, rel=0.02)
    assert np.log(found).std() == pytest.approx(0.5, rel=0.02)
    assert np.log(found).mean() == pytest.approx(math.log(2) - 0.5**2 / 2, abs=0.015)


def test_shifted_exponential_times_are_the_shift_and_a_memoryless_tail():
    found = times(bed(compute="exponential:0.8,0.2"), 20_000)
    assert found.min() >= 0.8 and found.mean() == pytest.approx(1.0, rel=0.01)
    assert np.quantile(found, 0.5) == pytest.approx(0.8 + 0.2 * math.log(2), rel=0.01)


@pytest.mark.parametrize("compute", ["lognormal:1,0.3", "exponential:0.8,0.2", "markov:4,0.5,2"])
def test_times_depend_on_seed_agent_and_iteration_alone(compute):
    one, other = bed(compute=compute).iterations(5), bed(compute=compute).iterations(5)
    asked = [(agent, number, 10**9 * number) for number in (0, 255, 256, 700) for agent in range(3)]
    assert [one.end(*each) for each in asked] == [other.end(*each) for each in reversed(asked)][::-1]
    third = bed(compute=compute).iterations(6)
    assert [one.end(*each) for each in asked] != [third.end(*each) for each in asked]


@pytest.mark.parametrize("compute", ["2", "lognormal:2,0.5", "exponential:0.8,0.2"])
def test_the_mean_of_a_model_is_that_of_its_times(compute):
    model = bed(compute=compute, slow="1*4", update=0.5)
    for agent in (0, 1):
        assert times(model, 5000, agent).mean() == pytest.approx(model.compute.mean(3)[agent], rel=0.03)


def integrated(begin, work, slow, ends, factor):
    """The end of an iteration, from the speed of every nanosecond in turn."""
    now = begin
    while True:
        place = sum(1 for end in ends if end <= now)
        work -= 1 / factor if slow ^ (place % 2 == 1) else 1
        now += 1
        if work <= 1e-9:
            return now


@settings(max_examples=60)
@given(
    begin=st.integers(0, 300),
    work=st.integers(1, 60),
    factor=st.sampled_from([1, 2, 4]),
    slow=st.booleans(),
    gaps=st.lists(st.integers(1, 40), min_size=20, max_size=20),
)
def test_work_is_integrated_over_slow_and_fast_stretches(begin, work, factor, slow, gaps):
    ends = [4 * end for end in np.cumsum([*gaps, 10**4]).tolist()]  # whole units of work in each stretch
    clock = SlowAndFast(MarkovSlowdown(float(factor), 1.0, 1.0), 0, float(work))
    clock._stretches[0] = (slow, list(ends))
    assert clock.end(0, 0, 4 * begin) == integrated(4 * begin, work, slow, ends, factor)


def test_a_slow_agent_is_slow_for_its_share_of_the_time():
    model = bed(compute="markov:4,1,3", step_seconds=0.01)
    clock = model.iterations(1)
    for agent in range(8):  # some begin slow
        now, number = 0, 0
        while now < 400 * SECOND:
            now, number = clock.end(agent, number, now), number + 1
        assert now / number / SECOND == pytest.approx(model.compute.mean(3)[0] * 0.01, rel=0.15)
    assert model.compute.mean(3)[0] == pytest.approx(1 / (0.75 + 0.25 / 4))


def test_a_factor_multiplies_the_work_and_the_update_comes_on_top():
    model = bed(compute=[1, 2, 3], slow={2: 4}, update=0.25, step_seconds=2)
    assert [times(model, 1, agent)[0] for agent in range(3)] == [2.5, 4.5, 24.5]
    assert times(bed(compute="slow:1*4"), 1, 1)[0] == 4 and times(bed(slow=[1, 2, 3]), 1, 2)[0] == 3


def test_a_trace_is_replayed_in_a_loop(folder):
    (folder / "plain.csv").write_text("agent,seconds\n0,1\n1,5\n2,7\n0,2\n")
    (folder / "numbered.csv").write_text("agent,iteration,seconds\n0,1,2\n1,0,5\n2,0,7\n0,0,1\n")
    for name in ("plain", "numbered"):
        model = bed(compute=f"trace:{name}.csv")
        assert times(model, 5).tolist() == [1, 2, 1, 2, 1] and times(model, 2, 1).tolist() == [5, 5]
        assert model.compute.mean(3).tolist() == [1.5, 5, 7]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"compute": [1, 2]}, "compute has 2 numbers for 3 agents"),
        ({"compute": 0}, "compute must lie in [1e-06, 1e+09] seconds, got 0"),
        ({"compute": float("nan")}, "got nan"),
        ({"compute": "lognorml:1,1"}, "did you mean 'lognormal'?"),
        ({"compute": "lognormal:1"}, "write it like lognormal:1,0.3"),
        ({"compute": "lognormal:1,9"}, "sigma of lognormal compute must lie in [0, 5], got 9"),
        ({"compute": "markov:0.5,1,1"}, "factor of markov compute must lie in [1, 1e+06], got 0.5"),
        ({"compute": "1 parsec"}, "unknown unit of a time 'parsec'"),
        ({"compute": "trace:none.csv"}, "cannot read times 'none.csv'"),
        ({"compute": "trace:other.csv"}, "its first line must be agent,seconds or agent,iteration,seconds"),
        ({"compute": "trace:few.csv"}, "has times of 2 agents for 3"),
        ({"compute": "trace:gap.csv"}, "has no times of agent 0"),
        ({"slow": "7*4"}, "slow names agent 7; agents are numbered 0 to 2"),
        ({"slow": [1, 2]}, "slow has 2 numbers for 3 agents"),
        ({"slow": "1*-4"}, "got -4"),
        ({"update": -1}, "update must lie in"),
        ({"step_seconds": 0}, "step_seconds must lie in"),
    ],
)
def test_bad_times_are_refused_in_one_line(folder, settings, says):
    (folder / "other.csv").write_text("name,age\nAda,36\n")
    (folder / "few.csv").write_text("agent,seconds\n0,1\n1,1\n")
    (folder / "gap.csv").write_text("agent,seconds\n2,1\n1,1\n")
    assert says in refusal(agents=3, **settings)
