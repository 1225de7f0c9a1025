"""The benchmark compares like with like; nothing here depends on how fast anything is."""

import dataclasses

import pytest
import torch

import gossamer as gm
from gossamer import fused
from gossamer.bench import CASES, gossip, make_request
from gossamer.bench.measure import Contestant, Race, Timing, copy_rate
from gossamer.bench.rival_steps import NaiveLoop, OneModel, Vmapped
from gossamer.bench.scale import over_base
from gossamer.bench.speed import compared, elements_moved
from gossamer.bench.workloads import SEED, Workload
from gossamer.engine.execution import make_execution
from gossamer.engine.execution.base import Setup
from gossamer.engine.simulation import Simulation
from gossamer.nn import make_model

PLAN = make_request("cpu", None, None, quick=True)
NET = Workload("preresnet:8", "ring:3", 4, 2, (3, 8, 8), 60)


# The comparison is honest.


@pytest.mark.parametrize("rival", [NaiveLoop, Vmapped])
def test_a_rival_computes_the_gradients_of_the_engine(rival):
    task = NET.task()
    inputs, targets = NET.batch_of(PLAN, task)
    made = rival(task, inputs, targets)
    made.step()
    setup = Setup(task, task.fresh_module(SEED), 3, "cpu", torch.float32)
    truth, _ = make_execution("stacked", setup).gradient(task.initial("common", 3, SEED), inputs, targets)
    torch.testing.assert_close(made.gradient(), truth, rtol=1e-3, atol=1e-5)
    assert truth.abs().max() > 0.01


def test_a_rival_begins_with_the_batch_of_the_engine():
    task = NET.task()
    training = NET.training(PLAN, task)
    batches = training.simulation.source.batches
    for mine, theirs in zip(NET.batch_of(PLAN, task), batches.load(batches.draw(0)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


def test_rivals_take_steps_of_sgd():
    task = NET.task()
    inputs, targets = NET.batch_of(PLAN, task)
    start = task.fresh_module(SEED).initial()
    loop, vmapped = NaiveLoop(task, inputs, targets), Vmapped(task, inputs, targets)
    for _ in range(2):
        loop.step()
        vmapped.step()
    ends = torch.stack([torch.cat([p.detach().flatten() for p in module.parameters()]) for module in loop.modules])
    assert (ends != start).any(dim=1).all()
    stacked = torch.cat([value.flatten(1) for value in vmapped.parameters.values()], dim=1)
    torch.testing.assert_close(ends - start, stacked - start, rtol=0.01, atol=1e-6)
    one = OneModel(task, inputs, targets, torch.float32)
    before = [p.detach().clone() for p in one._module.parameters()]
    one.step()
    assert any((a != b).any() for a, b in zip(before, one._module.parameters(), strict=True))


@pytest.mark.parametrize("case", ["preresnet", "mlp", "algorithms", "thousand"])
def test_late_messages_are_there_before_the_engine_is_timed(case, monkeypatch):
    seen = []
    monkeypatch.setattr(Race, "run", lambda self, contestants: seen.extend(contestants) or {})
    CASES[case].run(PLAN)
    engines = [one for one in seen if isinstance(one.step.__self__, Simulation)]
    assert engines and len({one.label for one in seen}) == len(seen)
    for one in engines:
        assert one.warm_up >= one.step.__self__.mailbox.network.delay.largest + 2


def test_many_agents_are_measured_at_each_number_and_delay(command, tmp_path):
    document = command("bench", "agents", "--quick", "--device", "cpu", "--out", tmp_path, "--json").document
    (record,) = document["cases"]
    assert [(row["label"], row["delay"]) for row in record["rows"]] == [
        (f"{count} agents", delay) for count in (8, 12) for delay in ("5", "uniform:1,9")
    ]
    assert all(row["us_agent"] > row["us_rest"] and row["build"] > 0 for row in record["rows"])
    assert "us by agent and step" in (tmp_path / "RESULTS.md").read_text()


@pytest.mark.parametrize("case", ["transformer", "small-images"])
def test_small_workloads_of_a_cpu_run(case):
    rows = CASES[case].run(PLAN).rows
    assert all(row["ms"] > 0 for row in rows) and rows[0]["faster"] == 1


def test_the_floor_of_a_rule_counts_every_row_that_it_reads_or_writes_once(monkeypatch):
    monkeypatch.setattr(fused, "SMALLEST", 0)
    x = torch.ones(4, 1000)
    recorder = fused.make_recorder(x)
    rows, other = recorder.defer(x), recorder.defer(2 * x)
    recorder.finish([rows * other + rows, rows - other])  # two rows read, two written
    assert recorder.bytes_moved == 4 * x.nbytes
    measured = CASES["rules-many"].run(PLAN)
    gradient, *rules = measured.rows
    assert {row["delay"] for row in rules} == {"3", "uniform:5,60"} and len(rules) == 10
    for row in rules:
        assert ("floor_ms" in row) == (row["delay"] == "3")
        assert "floor_ms" not in row or row["over_floor"] == pytest.approx(row["ms"] / row["floor_ms"])
        assert row["with_gradient"] == pytest.approx((gradient["ms"] + row["ms"]) / gradient["ms"])


def test_the_floor_counts_the_passes_of_every_unit():
    net = make_model("preresnet:8", (3, 8, 8), 10)
    # One block a stage: a unit of c -> k channels, then one of k -> k with a residual.
    pixels, expected = 64, 0
    for c, k, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
        out = pixels // stride**2
        expected += 8 * c * pixels + 3 * k * out + (9 + 4) * k * out
        pixels = out
    assert elements_moved(net, (3, 8, 8)) == expected


def gossipy_takes_one_gradient_step_a_node_and_round():
    work = Workload("mlp:4", "ring:3", 4, 2, (1, 4, 4), 60)  # it cannot average the counters of BatchNorm
    task, steps = work.task(), []
    inputs, targets = work.batch_of(PLAN, task)
    counted = dataclasses.replace(task, loss=lambda *given: steps.append(0) or task.loss(*given))
    seconds = gossip.rounds(counted, inputs, targets, gm.network("ring:3"), delay=2, count=4)
    # At the start each node trains once; then 8 rounds, of which the first 2 see no message.
    assert len(seconds) == 4 and len(steps) == 3 * (1 + 8 - 2)


if gossip.installed():  # elsewhere there is nothing to test
    test_gossipy_takes_one_gradient_step_a_node_and_round = gossipy_takes_one_gradient_step_a_node_and_round


# Arithmetic.


def test_ratios_are_times_over_the_first_one():
    timings = {"a": Timing(2.0, 1.0, 3.0, 3), "b": Timing(5.0, 4.0, 6.0, 3)}
    rows = compared(["a", "b", "c"], timings, {"c": "not installed"})
    assert [row.get("faster") for row in rows] == [1.0, 2.5, None]
    assert rows[2] == {"label": "c", "note": "not installed"}
    without_ours = compared(["c", "b"], timings, {})
    assert without_ours[1]["faster"] is None and without_ours[0]["note"] == "not measured"


def test_algorithms_are_compared_at_the_same_delay():
    entries = [("d-asgd", 20), ("pc-asgd", 20), ("d-asgd", 5), ("pc-asgd", 5)]
    values = {"d-asgd at delay 20": 10.0, "pc-asgd at delay 20": 12.0, "d-asgd at delay 5": 4.0}
    rows = over_base(entries, {label: Timing(ms, ms, ms, 1) for label, ms in values.items()})
    assert [row.get("over") for row in rows] == [0.0, pytest.approx(0.2), 0.0, None]
    assert rows[3]["note"] == "not measured"


def test_a_timing_is_a_median_with_its_spread():
    assert Timing.of([3.0, 1.0, 10.0]) == Timing(3.0, 1.0, 10.0, 3)
    assert copy_rate("cpu", 1024) > 0


# The race.


def test_contestants_take_turns_after_their_warm_up():
    calls = []
    contestants = [Contestant(name, lambda name=name: calls.append(name), 2, 3) for name in "ab"]
    race = Race("cpu", 2, lambda text: None)
    timings = race.run(contestants)
    assert "".join(calls) == "aabb" + "aaabbb" + "bbbaaa"
    assert {label: timing.blocks for label, timing in timings.items()} == {"a": 2, "b": 2}


def test_a_rival_that_cannot_run_is_noted_and_the_engine_is_not_excused():
    def fails():
        raise RuntimeError("no batching rule\nand more")

    race = Race("cpu", 1, lambda text: None)
    timings = race.run([Contestant("a", lambda: None, 1, 1), Contestant("b", fails, 1, 1, may_fail=True)])
    assert set(timings) == {"a"} and race.notes == {"b": "no batching rule"}
    with pytest.raises(RuntimeError, match="batching"):
        Race("cpu", 1, lambda text: None).run([Contestant("b", fails, 1, 1)])


def test_an_interrupt_keeps_the_blocks_so_far():
    calls = []

    def step():
        calls.append(0)
        if len(calls) == 5:
            raise KeyboardInterrupt

    race = Race("cpu", 9, lambda text: None)
    timings = race.run([Contestant("a", step, 1, 1)])
    assert race.interrupted and timings["a"].blocks == 3


def test_memory_is_set_beside_what_the_engine_expects(monkeypatch):
    # The counters of a GPU, on a machine without one.
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 5)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 12)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 20)
    rows = CASES["memory"].run(PLAN).rows
    assert [(row["label"], row["delay"], row["history"]) for row in rows] == [
        (name, delay, kept) for name in ("pc-asgd", "d-asgd") for delay in (5, 20, 60) for kept in ("state", "bf16")
    ]
    for row in rows:
        vectors = {"pc-asgd": 2, "d-asgd": 1}[row["label"]]
        assert (row["peak"], row["reserved"]) == (7, 20)
        assert row["formula"] == vectors * (row["delay"] + 2) * 8 * 226 * {"state": 4, "bf16": 2}[row["history"]]
        assert row["estimate"] == sum(row[part] for part in ("states", "histories", "activations", "data"))
        assert row["histories"] * (row["delay"] + 2) == row["formula"] * (row["delay"] + 1)
