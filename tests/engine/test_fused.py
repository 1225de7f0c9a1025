"""Rules whose arithmetic is deferred and done in one pass give what torch gives, operation by operation."""

import dataclasses
import gc
import operator
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import golden
import gossamer as gm
from gossamer import fused
from gossamer.algorithms import Algorithm, Past, Update, algorithm_names, parse_algorithm, register
from gossamer.algorithms import algorithm as make_algorithm
from gossamer.algorithms.registry import _RULES
from gossamer.engine.simulation import Simulation
from gossamer.fused import make_recorder, real
from gossamer.state.local import LocalOptimizer
from worlds import Smooth

SERVED = ("asgd", "dc-asgd-c", "dc-asgd-a", "dasgd-is", "gap-aware", "delay-adaptive", "delayed-nesterov")
quick = settings(deadline=None, max_examples=25)


@pytest.fixture(autouse=True)
def every_size(monkeypatch):
    """Small rows are deferred too."""
    monkeypatch.setattr(fused, "SMALLEST", 0)


def simulation(rule, *, dtype=torch.float64, delay="uniform:1,5", size=7, deferred=True, momentum=0.0, seed=1):
    name, options = parse_algorithm(rule)
    rows = Smooth(5, size, seed)

    class Source:
        offers = frozenset({"loss", "gradient", "fresh_gradient"})

        def gradient(self, x, step):
            return torch.from_numpy(rows.gradient(x, step)).to(x), None

        def gradient_elsewhere(self, x, step):
            return self.gradient(real(x), step)[0]

        def loss(self, x, step):
            return torch.from_numpy(rows.loss(real(x), step)).to(x.dtype)

        def fresh_gradient(self, x, step):
            return self.gradient(real(x), step + 1000)[0]

    network = gm.network("complete:5", delay=delay, clusters="2,3", loss=0.1 if ":" in str(delay) else 0.0)
    local = LocalOptimizer(momentum=momentum) if momentum else None
    x0 = torch.from_numpy(rows.x0).to(dtype)
    return Simulation(
        make_algorithm(name, **options), network, Source(), x0, lr=lambda t: 0.05, local=local, fused=deferred
    )


def path(simulation, steps):
    states = []
    for _ in range(steps):
        simulation.step()
        states.append(simulation.x)
    return torch.stack(states)


@pytest.mark.parametrize("rule", golden.RULES)
def test_every_rule_takes_the_same_path(rule):
    paths = [path(simulation(rule, deferred=deferred), 12) for deferred in (True, False)]
    torch.testing.assert_close(*paths, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rule", ["pc-asgd", "sdm-asgd", "pc-asgd/theta=pv", "sgp"])
def test_in_float32_the_paths_part_by_rounding_alone(rule):
    paths = [path(simulation(rule, dtype=torch.float32, delay=3, deferred=each), 8) for each in (True, False)]
    torch.testing.assert_close(*paths, rtol=3e-6, atol=3e-6)
    assert not torch.equal(*paths)  # else nothing was deferred


@pytest.mark.parametrize("rule", ["pc-asgd", "sdm-asgd", "sgp", "pc-asgd/theta=pv"])
@pytest.mark.parametrize("delay", [2, "uniform:1,5"])
def test_a_run_that_is_resumed_takes_the_same_path_to_the_bit(rule, delay):
    whole, first, rest = (simulation(rule, delay=delay, momentum=0.5, dtype=torch.float32) for _ in range(3))
    expected = path(whole, 22)
    path(first, 9)
    rest.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
    assert torch.equal(path(rest, 13), expected[9:])


def test_small_rows_and_other_types_are_not_deferred(monkeypatch):
    monkeypatch.setattr(fused, "SMALLEST", 100)
    assert make_recorder(torch.zeros(9, 11)) is None and make_recorder(torch.zeros(10, 10)) is not None
    assert make_recorder(torch.zeros(10, 10, dtype=torch.bfloat16)) is None


# Any program of the operations that rules use.

BINARY = (operator.add, operator.sub, operator.mul, lambda a, b: a / (b * b + 1), torch.maximum)
UNARY = (torch.neg, torch.square, lambda a: torch.sqrt(a * a + 0.5), lambda a: 0.3 * a, lambda a: 1.5 - a, torch.abs)
IN_PLACE = (
    lambda a, b: a.add_(b, alpha=-0.7),
    lambda a, b: a.mul_(b),
    lambda a, b: a.addcmul_(b, b, value=0.2),
    lambda a, b: a.lerp_(b, 0.4),
    lambda a, b: a.clamp_(max=1.0),
)


def run_program(rows, columns, weights, moves):
    """Apply the moves to a growing list of values; return them all."""
    values = list(rows)
    for kind, choice, one, other in moves:
        a, b = values[one % len(values)], values[other % len(values)]
        if kind == "binary":
            values.append(BINARY[choice % len(BINARY)](a, b))
        elif kind == "unary":
            values.append(UNARY[choice % len(UNARY)](a))
        elif kind == "change":
            changed = a.clone()
            IN_PLACE[choice % len(IN_PLACE)](changed, b)
            values.append(changed)
        elif kind == "links":
            values.append(weights @ a)
        elif kind == "more links":
            values.append((a * 1.0).addmm_(weights, b, alpha=0.5))
        elif kind == "scale":
            values.append(columns[:, None] * a + torch.where(columns[:, None] > 0, a, b))
        elif kind == "number":
            lengths = torch.linalg.vector_norm(a, dim=1) + (a * b).sum(dim=1)
            values.append(a * (lengths / (lengths * lengths + 1))[:, None])
        else:
            values.append(a.view_as(a) + a[:, :1])
    return values


moves = st.tuples(
    st.sampled_from(["binary", "unary", "change", "links", "more links", "scale", "number", "view"]),
    st.integers(0, 9),
    st.integers(0, 40),
    st.integers(0, 40),
)


@quick
@given(
    program=st.lists(moves, min_size=1, max_size=14),
    agents=st.integers(2, 5),
    size=st.sampled_from([1, 3, 2049]),
    wide=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_program_of_operations_gives_what_torch_gives(program, agents, size, wide, seed):
    draws = torch.Generator().manual_seed(seed)
    rows = [torch.randn(agents, size, generator=draws, dtype=torch.float64) / 3 for _ in range(3)]
    rows[2] = rows[2].double() if wide else rows[2].float().double()
    columns = torch.randn(agents, generator=draws, dtype=torch.float64)
    weights = torch.rand(agents, agents, generator=draws, dtype=torch.float64)
    weights = weights * (weights > 0.5)
    expected = run_program(rows, columns, weights, program)
    recorder = make_recorder(rows[0])
    found = run_program([recorder.defer(each) for each in rows], columns, weights, program)
    recorder.finish(found)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(real(one), other, rtol=1e-9, atol=1e-9, equal_nan=True)


@quick
@given(agents=st.integers(2, 4), size=st.sampled_from([2, 2050]), seed=st.integers(0, 99))
def test_types_are_mixed_as_torch_mixes_them(agents, size, seed):
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(agents, size, generator=draws)
    total = torch.randn(agents, size, generator=draws, dtype=torch.float64)
    weights = torch.rand(agents, agents, generator=draws, dtype=torch.float64)

    def rule(x, total):
        moved = total + (x - 0.1 * x * x)
        heard = weights @ moved
        return moved, heard, (heard - total).to(x.dtype), x * (x * total), (x * 2).double()

    recorder = make_recorder(x)
    found = rule(recorder.defer(x), recorder.defer(total))
    recorder.finish(found)
    for one, other in zip(found, rule(x, total), strict=True):
        one = real(one)
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_a_change_after_a_view_is_seen_by_the_view():
    x = torch.randn(3, 4)
    recorder = make_recorder(x)
    rows = recorder.defer(x) * 2
    before, column = rows + 1, rows[:, 0]
    rows.add_(1)
    recorder.finish([rows, before])
    assert torch.equal(column, 2 * x[:, 0] + 1)
    torch.testing.assert_close(real(before), 2 * x + 1)
    torch.testing.assert_close(real(rows), 2 * x + 1)


def test_rows_are_freed_when_the_last_name_of_them_is_gone():
    """Not when Python looks for cycles: until then every step would need new memory."""
    recorder = make_recorder(torch.ones(3, 4))
    rows = recorder.defer(torch.ones(3, 4)) * 2
    freed = weakref.ref(rows)
    gc.disable()
    try:
        assert torch.stack([rows.abs(), rows]).sum() == 48  # operations that are not recorded
        del rows
        assert freed() is None
    finally:
        gc.enable()


def test_an_agent_pays_for_the_messages_that_it_holds_whatever_their_ages(monkeypatch):
    import gossamer.fused.program as program

    counts, expand = [], program.expand

    def counting(*args):
        found = expand(*args)
        counts.append(sum(int((found[0][:, end] - found[0][:, end - 1]).sum()) for end in (4, 8)))
        return found

    monkeypatch.setattr(program, "expand", counting)
    path(simulation("pc-asgd", delay=3), 30)
    fixed, links, agents = counts[-1], 2 * 2 * 3, 5
    path(simulation("pc-asgd", delay="uniform:1,20"), 30)
    # For each link the terms of its own drift and what they are multiplied with; for each agent sums over its past.
    assert counts[-1] <= fixed + 9 * links + 8 * agents


@dataclasses.dataclass(frozen=True, kw_only=True)
class Odd(Algorithm):
    """A user's rule with operations that nothing knows."""

    name = "odd"

    @property
    def past(self):
        return Past.STATE

    def step(self, own, inbox, weights, noise):
        x = own.x.sort(dim=1).values * 0.1 + own.x
        x[:, 0] = own.g[:, 1]
        x.sub_(own.v, alpha=own.lr)
        for late in inbox.late:
            x += 0.01 * (weights.mass[:, None] * torch.tanh(late.own_x)) + late.weights @ torch.tanh(late.message["x"])
        return Update(x.flip(1), state={"half": x[:, :3]})

    def start(self, x, place):
        return {"half": x[:, :3]}


def test_a_rule_of_unknown_operations_falls_back_in_silence(recwarn):
    register("odd")(Odd)
    try:
        paths = [path(simulation("odd", deferred=deferred), 9) for deferred in (True, False)]
    finally:
        del _RULES["odd"]
    torch.testing.assert_close(*paths, rtol=1e-12, atol=1e-12)
    assert not recwarn and "odd" not in algorithm_names()


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_share_the_columns(threads, monkeypatch):
    monkeypatch.setattr("gossamer.fused.program.SMALLEST_SHARE", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 5000)))
    recorder = make_recorder(x)
    rows = recorder.defer(x)
    made, lengths = rows * rows + rows, torch.linalg.vector_norm(rows, dim=1)
    recorder.finish([made, lengths])
    torch.testing.assert_close(real(made), x * x + x)
    torch.testing.assert_close(real(lengths), torch.linalg.vector_norm(x, dim=1))
