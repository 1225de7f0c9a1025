"""The past: rings in every way they are kept, sums over a window of them, and whole runs on top."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.engine import make_training
from gossamer.run.folder import RunFolder
from gossamer.run.settings import make_settings
from gossamer.state.history import PrefixDrift, Ring, SlidingDrift
from runs import outcome

WAYS = ("state", "bf16", "host")
quick = settings(max_examples=40)


def walk(steps, shape=(2, 3), seed=0, dtype=torch.float64):
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(steps, *shape, generator=draws, dtype=torch.float64).to(dtype)


# Rings.


def test_a_value_that_lasts_is_held_and_any_other_is_copied():
    ring, value = Ring(3, torch.zeros(2, 3)), torch.ones(2, 3)
    ring.push(0, value, lasting=True)
    ring.push(1, value)
    ring.push(3, 2 * value)  # over the one that lasts, which must not be written to
    value.add_(1)
    assert torch.equal(ring.at(1), torch.ones(2, 3)) and torch.equal(ring.at(3), torch.full((2, 3), 2.0))
    ring.push(6, value, lasting=True)
    assert ring.at(6) is value


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("where", WAYS)
def test_a_ring_returns_what_was_pushed(where, dtype):
    depth, values = 4, walk(11, dtype=dtype)
    ring = Ring(depth, values[0], where)
    kept = values.to(torch.bfloat16).to(dtype) if where == "bf16" else values  # rounded once
    for step, value in enumerate(values):
        ring.push(step, value)
        for back in range(depth):
            if step - back >= 0:
                found = ring.at(step - back)
                assert found.dtype == dtype and torch.equal(found, kept[step - back])
    held = ring.state_dict().values()
    assert len(held) == ring.depth == depth
    assert {value.element_size() for value in held} == {2 if where == "bf16" else dtype.itemsize}
    assert torch.equal(values, walk(11, dtype=dtype))  # what was pushed is left alone


@pytest.mark.parametrize("where", WAYS)
def test_steps_before_the_first_mean_the_first(where):
    values = walk(4)
    ring = Ring(4, values[0], where)
    for step, value in enumerate(values):
        ring.push(step, value)
        assert all(torch.equal(ring.at(-back), ring.at(0)) for back in range(1, 9))
        torch.testing.assert_close(ring.at(-1), values[0], rtol=2**-8, atol=0)


def test_a_value_that_is_changed_after_the_push_stays_what_it_was():
    value = walk(1)[0]
    ring = Ring(2, value)
    ring.push(0, value)
    value.zero_()
    assert torch.equal(ring.at(0), walk(1)[0])


# Drift.


def by_definition(states, step, age):
    """sum_{r < age} (x(t - age + r) - x(t - age)); before the first step all states are the first."""
    oldest = states[max(0, step - age)].double()
    return sum((states[max(0, step - age + r)].double() - oldest for r in range(age)), torch.zeros_like(oldest))


def assert_drifts(found, states, step, ages, tolerance=1e-9):
    assert set(found) == set(ages)
    for age in ages:
        torch.testing.assert_close(found[age].double(), by_definition(states, step, age), rtol=0, atol=tolerance)


asked = st.lists(st.sets(st.integers(1, 9), max_size=7), min_size=1, max_size=40)


@quick
@given(asked=asked, rebuild=st.sampled_from([1, 2, 5, 256]), kept=st.integers(0, 9), seed=st.integers(0, 99))
def test_drift_is_its_definition_whatever_is_asked_when(asked, rebuild, kept, seed):
    states = walk(len(asked), seed=seed).cumsum(dim=0)
    ring = Ring(10, states[0])
    drift = SlidingDrift(ring)
    drift.REBUILD, drift.KEPT = rebuild, kept
    for step, ages in enumerate(asked):
        ring.push(step, states[step])
        if ages:  # a step at which nothing is late is a gap
            assert_drifts(drift.at(step, ages), states, step, ages)


@quick
@given(asked=asked, seed=st.integers(0, 99), saved_at=st.integers(0, 40))
def test_drift_from_prefix_sums_is_its_definition_also_when_it_goes_on_from_saved_sums(asked, seed, saved_at):
    states = walk(len(asked), seed=seed).cumsum(dim=0)
    ring = Ring(10, states[0])
    drift = PrefixDrift(ring)
    for step, ages in enumerate(asked):
        if step == saved_at:
            kept = {name: value.clone() for name, value in drift.state_dict().items()}
            drift = PrefixDrift(ring)
            drift.load_state_dict(kept)
        ring.push(step, states[step])
        assert_drifts(drift.at(step, ages), states, step, ages)


@pytest.mark.parametrize("step", [0, 4, 25])
def test_drift_from_prefix_sums_goes_on_from_a_checkpoint_with_sliding_sums(step):
    states = walk(40).cumsum(dim=0)
    ring = Ring(10, states[0])
    before = SlidingDrift(ring)
    for earlier in range(step):
        ring.push(earlier, states[earlier])
        before.at(earlier, {2})
    drift = PrefixDrift(ring)
    drift.load_state_dict(before.state_dict())
    for later in range(step, 40):
        ring.push(later, states[later])
        assert_drifts(drift.at(later, {1, 5, 9}), states, later, {1, 5, 9})


@pytest.mark.parametrize("ages", [{1}, {6}, {1, 6}, {2, 3, 4, 5}, {1, 2, 3, 4, 5, 6}])
def test_drift_of_fixed_ages_over_many_rebuilds(ages, monkeypatch):
    monkeypatch.setattr(SlidingDrift, "REBUILD", 7)
    states = walk(60).cumsum(dim=0)
    ring = Ring(7, states[0])  # no deeper than the largest age asks for
    drift = SlidingDrift(ring)
    for step, state in enumerate(states):
        ring.push(step, state)
        assert_drifts(drift.at(step, ages), states, step, ages)


def test_drift_goes_on_from_its_saved_state_to_the_last_bit():
    states = walk(40, dtype=torch.float32).cumsum(dim=0)
    ring = Ring(6, states[0])
    drift = SlidingDrift(ring)
    for step in range(20):
        ring.push(step, states[step])
        drift.at(step, {3, 5})
    other_ring = Ring(6, states[0])
    other_ring.load_state_dict(ring.state_dict())
    other = SlidingDrift(other_ring)
    other.load_state_dict({name: value.clone() for name, value in drift.state_dict().items()})
    for step in range(20, 40):
        found = []
        for one_ring, one in ((ring, drift), (other_ring, other)):
            one_ring.push(step, states[step])
            found.append(one.at(step, {3, 5}))
        assert all(torch.equal(found[0][age], found[1][age]) for age in (3, 5))


@pytest.mark.parametrize("rebuild", [256, 10**9])
@pytest.mark.parametrize("age", [2, 20])
def test_drift_is_accurate_in_float32_where_states_are_large_against_their_moves(age, rebuild, monkeypatch):
    """|x| is 10^4 times as large as what x moves by in a window: sums of states would have lost all but a digit."""
    monkeypatch.setattr(SlidingDrift, "REBUILD", rebuild)
    steps, shape = 1000, (2, 50)
    moves = 1e-4 / age * (1 + 0.5 * walk(steps, shape, seed=1))  # a steady pace and noise
    states = (3.7 + walk(1, shape, seed=2) * 0.1 + moves.cumsum(dim=0)).float()
    ring = Ring(age + 1, states[0])
    drift = SlidingDrift(ring)
    worst = 0.0
    for step, state in enumerate(states):
        ring.push(step, state)
        found = drift.at(step, {age})[age].double()
        if step > 2 * age and (step > 950 or step % 256 in (0, 1, 254, 255)):
            exact = by_definition(states, step, age)
            assert exact.norm() < 1e-3 * age * states[step].norm()
            worst = max(worst, float((found - exact).norm() / exact.norm()))
    assert worst < 1e-4


# Whole runs.

BASE = {"model": "linear", "epochs": 2, "delay": "5", "lr": 0.1, "eval_every": 6, "execution": "vmap"}  # 24 steps
CASES = {
    "d-asgd": {"algorithm": "d-asgd", "delay": "uniform:1,6"},
    "p-asgd": {"algorithm": "p-asgd", "momentum": 0.9},
    "pc-asgd": {"algorithm": "pc-asgd", "theta": "pv"},
    "dm-asgd": {"algorithm": "dm-asgd", "delay": "uniform:1,6"},
}


def training(**values):
    return make_training(make_settings({**BASE, **values}))


@pytest.mark.parametrize("case", CASES)
def test_late_messages_in_half_the_memory_change_a_run_a_little_and_on_the_host_not_at_all(case):
    runs = {where: training(history=where, **CASES[case]) for where in WAYS}
    start = runs["state"].simulation.x.clone()
    for run in runs.values():
        for _ in range(20):
            run.simulation.step()
        held = [value for ring in run.simulation.mailbox.rings.values() for value in ring.state_dict().values()]
        assert {value.dtype for value in held} == {torch.bfloat16 if run.settings.history == "bf16" else torch.float32}
    exact, rounded, host = (runs[where].simulation.x for where in WAYS)
    assert torch.equal(host, exact)
    assert 0 < (rounded - exact).norm() < 0.1 * (exact - start).norm()


@pytest.mark.parametrize("where", ["bf16", "host"])
@pytest.mark.parametrize("case", CASES)
def test_a_run_with_such_histories_resumes_byte_for_byte(tmp_path, where, case, monkeypatch):
    monkeypatch.setattr(SlidingDrift, "REBUILD", 6)
    for name, stops in (("whole", ()), ("pieces", (3, 15))):
        run = training(history=where, **CASES[case])
        folder = RunFolder.create(tmp_path / name, run.settings, run.network)
        for stop in stops:
            run.run(folder, stop=lambda run=run, stop=stop: run.simulation.t >= stop)
            folder, read = RunFolder.open(tmp_path / name)
            assert read.history == where
            run = make_training(read)
            run.resume(folder)
        run.run(folder)
    assert outcome(tmp_path / "pieces") == outcome(tmp_path / "whole")


def test_bf16_histories_reach_the_same_accuracy():
    exact, rounded = (training(algorithm="pc-asgd", history=where, epochs=6).run() for where in ("state", "bf16"))
    assert rounded.summary["accuracy_mean"] == pytest.approx(exact.summary["accuracy_mean"], abs=0.02)
