"""The compensation in O(d): sliding windows, closed forms, and nothing larger than it must be."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import gossamer as gm
from gossamer.algorithms.compensation import geometric_sum
from gossamer.engine.simulation import Simulation
from gossamer.engine.trajectory import FunctionSource
from gossamer.state.history import Ring, SlidingDrift
from gossamer.state.local import LocalOptimizer
from worlds import Smooth

steady = settings(deadline=None, max_examples=40)


def explicit_drift(states, t, age):
    """sum over r < age of x(t - age + r) - x(t - age), term by term in float64; before the start x is x(0)."""
    start = states[max(t - age, 0)].double()
    return sum((states[max(t - age + r, 0)].double() - start for r in range(age)), torch.zeros_like(start))


@st.composite
def questions(draw):
    """A largest age, and for each step the ages that are asked for: few or many, or None for a step left out."""
    largest = draw(st.integers(1, 9))
    some = st.sets(st.integers(1, largest), max_size=3)
    many = st.sets(st.integers(1, largest), min_size=min(largest, SlidingDrift.KEPT + 1))
    steady_ages = draw(some)
    step = st.one_of(st.just(steady_ages), st.just(steady_ages), some, many, st.none())
    return largest, draw(st.lists(step, min_size=1, max_size=30))


@steady
@given(questions(), st.integers(0, 100))
def test_the_sliding_drift_is_the_explicit_sum_for_any_ages_at_any_steps(asked, seed):
    largest, ages_by_step = asked
    states = torch.randn(len(ages_by_step), 2, 3, generator=torch.Generator().manual_seed(seed)).double()
    drift = SlidingDrift(ring := Ring(largest + 1, states[0]))
    for t, ages in enumerate(ages_by_step):
        ring.push(t, states[t])
        if ages is None:
            continue
        found = drift.at(t, ages)
        assert set(found) == ages
        for age in ages:
            torch.testing.assert_close(found[age], explicit_drift(states, t, age), rtol=0, atol=1e-12)


def test_the_drift_is_exact_across_rebuilds():
    states = torch.randn(3 * SlidingDrift.REBUILD, 1, 2, generator=torch.Generator().manual_seed(0)).double()
    drift = SlidingDrift(ring := Ring(6, states[0]))
    for t, state in enumerate(states):
        ring.push(t, state)
        torch.testing.assert_close(drift.at(t, [5])[5], explicit_drift(states, t, 5), rtol=0, atol=1e-12)


@pytest.mark.parametrize("pace", [1e-1, 1e-4])
def test_float32_states_do_not_make_the_drift_wander_in_5000_slides(pace):
    """Far from zero and moving slowly, where a sum in float32 would have lost every digit."""
    age, steps = 20, 5000
    noise = torch.randn(steps, 1, 16, generator=torch.Generator().manual_seed(0)).double()
    states = (3.0 + pace * (torch.arange(steps)[:, None, None] % 97 + noise)).float()
    drift = SlidingDrift(ring := Ring(age + 1, states[0]))
    for t, state in enumerate(states):
        ring.push(t, state)
        found = drift.at(t, [age])[age]
    assert found.dtype == torch.float32
    truth = explicit_drift(states, steps - 1, age)
    assert (found.double() - truth).norm() < 1e-5 * truth.norm()


# ---- the geometric sum of the self-consistent form


@steady
@given(st.floats(-12, 0.477), st.integers(1, 60))
def test_the_geometric_sum_is_the_loop(exponent, terms):
    q = torch.tensor([10.0**exponent], dtype=torch.float64)
    loop = sum((1 - q) ** j for j in range(terms))
    # Above q = 1 the terms alternate and cancel, so that the error is one of the largest term.
    largest = float((1 - q).abs() ** terms / q + 1)
    torch.testing.assert_close(geometric_sum(q, terms), loop, rtol=1e-12, atol=1e-14 * largest)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_geometric_sum_counts_its_terms_where_q_vanishes(dtype):
    q = torch.tensor([0.0, 1e-12, 1e-30], dtype=dtype)
    torch.testing.assert_close(geometric_sum(q, 60), torch.full_like(q, 60), rtol=1e-6, atol=0)


def test_the_geometric_sum_is_accurate_in_float32_on_both_sides_of_a_half():
    q = torch.tensor([1e-6, 1e-3, 0.4999, 0.5, 0.5001, 0.999, 1.0, 1.5])
    loop = sum((1 - q.double()) ** j for j in range(40))
    torch.testing.assert_close(geometric_sum(q, 40).double(), loop, rtol=1e-5, atol=0)


# ---- what a step allocates and a run keeps


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation makes."""

    numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, list | tuple) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.numel())
        return result


def simulation(name, n=4, d=3, delay=5, local=None, **options):
    net_options = {key: options.pop(key) for key in ("loss", "reliable_delay") if key in options}
    sizes = f"{n // 2},{n - n // 2}"
    smooth = Smooth(n, d, 0)
    return Simulation(
        gm.algorithm(name, **options),
        gm.network(f"clusters:{sizes}", delay, **net_options),
        FunctionSource(smooth.gradient, None),
        torch.from_numpy(smooth.x0),
        lr=lambda t: 0.05,
        local=local,
    )


@pytest.mark.parametrize("options", [{}, {"horizon": "last"}, {"self_consistent": True}, {"horizon": "mean"}], ids=str)
@pytest.mark.parametrize("name", ["p-asgd", "pc-asgd"])
def test_equal_delays_never_form_a_vector_for_each_pair(name, options):
    n, d, delay = 16, 50, 3
    run = simulation(name, n, d, delay, **options)
    for _ in range(2 * delay):
        with Largest() as seen:
            run.step()
    # The largest thing in sight is a vector for each agent.
    assert n * d <= seen.numel < 2 * n * d


@pytest.mark.parametrize("name", ["d-asgd", "dm-asgd"])
def test_rules_that_send_states_keep_no_gradients(name):
    assert set(simulation(name).mailbox.rings) == {"x"}


@pytest.mark.parametrize("name", ["c-asgd", "sync"])
def test_rules_that_hear_nothing_late_keep_no_history(name):
    mailbox = simulation(name).mailbox
    assert mailbox.rings == {} and mailbox.drift is None


@pytest.mark.parametrize("name", ["d-asgd", "p-asgd", "pc-asgd", "dm-asgd"])
def test_without_delay_no_history_is_kept(name):
    mailbox = simulation(name, delay=0).mailbox
    assert mailbox.rings == {} and mailbox.drift is None


@pytest.mark.parametrize("delay", [1, 2, 7, "uniform:0,9"])
@pytest.mark.parametrize("name", ["d-asgd", "p-asgd", "dm-asgd"])
def test_the_history_is_one_deeper_than_the_largest_delay(name, delay):
    largest = 9 if delay == "uniform:0,9" else delay
    rings = simulation(name, delay=delay).mailbox.rings
    assert {ring.depth for ring in rings.values()} == {largest + 1}


def test_plain_sgd_keeps_the_direction_and_the_gradient_once():
    assert set(simulation("p-asgd").mailbox.rings) == {"x", "g"}
    momentum = simulation("p-asgd", local=LocalOptimizer(momentum=0.9))
    assert set(momentum.mailbox.rings) == {"x", "g", "v"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, ("x", "v", "g")),
        ({"lam": 0}, ("x", "v")),
        ({"curvature": "coupled"}, ("x", "v")),
        ({"horizon": "none"}, ("x",)),
        ({"horizon": "public-code"}, ("x", "g")),
        ({"horizon": "public-code", "curvature": "coupled"}, ("x", "v")),
        ({"horizon": "public-code", "lam": 0}, ("x",)),
        ({"source": "recompute"}, ("x",)),
        ({"self_consistent": True}, ("x", "v", "g")),
    ],
)
def test_a_message_carries_what_the_compensation_reads_and_no_more(options, message):
    assert gm.algorithm("p-asgd", **options).message == message
