"""Which execution a run takes, measured or named, and what goes with it: precision and compilation."""

import gc
import tomllib

import pytest
import torch
from torch import nn

import gossamer as gm
from executions import (
    MODELS,
    Agents,
    N,
    assert_close,
    assert_same_buffers,
    examples,
    make_setup,
    make_source,
    make_task,
    run_with,
    small,
    states,
    with_dropout,
    with_norm,
)
from gossamer.engine import assembly, make_training
from gossamer.engine.execution import EXECUTIONS, choice, choose_execution, make_execution
from gossamer.run.settings import make_settings


class Decides(nn.Module):
    """Which way it goes depends on the data, which no transform can know."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        return self.linear(x) if x.sum() > 0 else self.linear(-x)


@pytest.fixture
def no_choice_yet(monkeypatch):
    monkeypatch.setattr(assembly, "_chosen", {})


def test_auto_picks_an_execution_says_so_and_stays_with_it(tmp_path, monkeypatch, no_choice_yet):
    task = make_task(with_dropout)
    before = torch.get_rng_state()
    run = make_training(make_settings(small), task=task)
    assert torch.equal(torch.get_rng_state(), before)
    name = run.settings.execution
    assert name in EXECUTIONS and run.simulation.source.execution.name == run.evaluate.execution.name == name
    note = run.notes["execution"]
    assert note.startswith(f"{name} (") and all(f"{other} " in note for other in EXECUTIONS) and " ms" in note
    monkeypatch.setattr(choice, "_seconds", None)  # a second measurement could come out otherwise
    monkeypatch.setattr(assembly, "choose_execution", None)
    assert make_training(make_settings(small), task=task).settings.execution == name
    result = gm.simulate(task, "clusters:2,2", out=tmp_path / "run", delay=3, batch=4, epochs=3)
    assert tomllib.loads((tmp_path / "run/config.toml").read_text())["execution"] == name
    assert result.summary["execution"] == name


def test_every_model_of_ones_own_is_measured_even_where_one_before_it_was(monkeypatch, no_choice_yet):
    measured = []

    def choose(setup, *batch):
        measured.append(setup.num_agents)  # not the set-up, which holds the model
        return "loop", {"loop": 1.0}

    monkeypatch.setattr(assembly, "choose_execution", choose)
    for _ in range(8):  # each is gone before the next is made, perhaps at the same place in memory
        make_training(make_settings(small), task=make_task(lambda: with_norm()))
        gc.collect()
    assert len(measured) == 8


def test_of_many_agents_some_are_measured_and_the_seconds_are_in_proportion(monkeypatch):
    measured = []

    def measure(execution, inputs, targets):
        measured.append((execution.setup.num_agents, len(inputs), len(targets)))
        return 1.0

    monkeypatch.setattr(choice, "_seconds", measure)
    monkeypatch.setattr(choice, "MOST_AGENTS", 2)
    task = make_task(with_norm)
    name, seconds = choose_execution(make_setup(task), *examples(task, 0))
    assert N > 2 and set(measured) == {(2, 2, 2)}
    assert name == "stacked" and seconds == dict.fromkeys(EXECUTIONS, N / 2)


def test_an_execution_that_is_named_is_taken_without_a_measurement(no_choice_yet):
    for name in EXECUTIONS:
        run = make_training(make_settings({**small, "execution": name}), task=make_task(with_norm))
        assert run.settings.execution == run.simulation.source.execution.name == name
        assert run.notes["execution"] == name


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ({"stacked": 1.0, "vmap": 0.9, "loop": 0.9}, "stacked"),  # a near tie
        ({"stacked": 1.0, "vmap": 0.7, "loop": 0.9}, "vmap"),
        ({"stacked": 1.0, "vmap": 2.0, "loop": 0.1}, "loop"),
        ({"vmap": 2.0, "loop": 1.0}, "loop"),
    ],
)
def test_the_fastest_is_chosen_unless_it_is_nearly_a_tie(monkeypatch, seconds, chosen):
    def measure(execution, inputs, targets):
        if execution.name not in seconds:
            raise gm.UserError("not this one")
        return seconds[execution.name]

    monkeypatch.setattr(choice, "_seconds", measure)
    task = make_task(with_norm)
    found = choose_execution(make_setup(task), torch.randn(N, 40, 6).double(), torch.zeros(N, 40, dtype=torch.int64))
    assert found == (chosen, seconds)


@pytest.mark.parametrize(
    ("per_example", "measured"),
    [
        (1e-4, [16] * 12 + [40] * 9),  # quick: three rounds on few examples and on all, after a first call each
        (0.99 * choice.LONGEST / 40, [16] * 12 + [40] * 3),  # the first round on all exceeds the budget
        (1.01 * choice.LONGEST / 40, [16] * 12),
        (choice.BUDGET, [16] * 6),
    ],
)
def test_the_whole_batch_decides_if_it_is_quick_and_tries_are_bounded(monkeypatch, per_example, measured):
    seen = []

    def measure(execution, inputs, targets):
        seen.append(inputs.shape[1])
        # Few examples are quicker stacked, the whole batch one by one.
        slow = {16: "loop", 40: "stacked"}[inputs.shape[1]]
        return per_example * inputs.shape[1] * (2 if execution.name == slow else 1)

    monkeypatch.setattr(choice, "_seconds", measure)
    task = make_task(with_norm)
    batch = torch.randn(N, 40, 6).double(), torch.zeros(N, 40, dtype=torch.int64)
    name, seconds = choose_execution(make_setup(task), *batch)
    assert seen == measured and set(seconds) == set(EXECUTIONS)
    assert name == ("stacked" if seen[-1] == 16 else "vmap")


def test_an_execution_that_cannot_run_the_model_is_left_out(no_choice_yet):
    task = make_task(Decides)
    name, seconds = choose_execution(make_setup(task), *examples(task, 0))
    assert name == "loop" and list(seconds) == ["loop"]
    agents, batch = Agents(task), (states(task), *examples(task, 0))
    assert_close(make_execution("loop", make_setup(task)).gradient(*batch)[0], agents.gradient(*batch)[0])
    run = make_training(make_settings({**small, "algorithm": "d-asgd"}), task=task)
    assert run.settings.execution == "loop" and run.run().summary["status"] == "finished"
    with pytest.raises(gm.UserError, match="use execution=loop") as error:
        make_execution("stacked", make_setup(task)).gradient(*batch)
    assert "\n" not in str(error.value)


def test_a_model_that_runs_in_no_way_fails_with_its_own_error(no_choice_yet):
    task = make_task(lambda: nn.Linear(5, 3))  # of features of which there are 6
    with pytest.raises(RuntimeError, match=r"shapes|size"):
        choose_execution(make_setup(task), *examples(task, 0))


# Precision.


@pytest.mark.parametrize("model", ["norm", "preresnet"])
def test_bf16_computes_close_to_float32_and_keeps_states_in_float32(model):
    task = make_task(*MODELS[model])
    values = {**small, "algorithm": "pc-asgd", "lr": 0.02}
    exact, rough = (
        make_training(make_settings({**values, "precision": precision, "execution": "stacked"}), task=task)
        for precision in ("float32", "bf16")
    )
    start = exact.simulation.x.clone()
    for _ in range(4):
        reports = [run.simulation.step() for run in (exact, rough)]
    assert rough.simulation.x.dtype == reports[1].loss.dtype == torch.float32
    moved = exact.simulation.x - start
    error = (rough.simulation.x - exact.simulation.x).norm() / moved.norm()
    assert 0 < error < 0.2  # batch norms over a handful of numbers enlarge what is rounded
    torch.testing.assert_close(reports[1].loss, reports[0].loss, rtol=0.05, atol=0.02)
    buffers = rough.simulation.statistics.buffers
    assert all(b.dtype == torch.float32 for b in buffers.values() if b.is_floating_point())
    whole = make_training(make_settings({**values, "precision": "bf16"}), task=task)  # auto takes the only one that can
    assert whole.settings.execution == "stacked" and whole.run().summary["status"] == "finished"


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"precision": "bf16", "execution": "vmap"}, "precision=bf16 needs execution=stacked, got vmap"),
        ({"precision": "bf16", "execution": "loop"}, "precision=bf16 needs execution=stacked, got loop"),
        ({"compile": True, "execution": "loop"}, "compile needs execution=stacked, got loop"),
        ({"compile": True, "execution": "vmap"}, "compile needs execution=stacked, got vmap"),
        ({"precision": "tf32", "dtype": "float64"}, "precision=tf32 needs dtype=float32, got float64"),
        ({"precision": "bf16", "dtype": "float64"}, "precision=bf16 needs dtype=float32, got float64"),
        ({"augment": "crop-flip"}, "use augment=none"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(values, match):
    with pytest.raises(gm.UserError, match=match) as error:
        make_training(make_settings({**small, **values}), task=make_task(with_norm))
    assert "\n" not in str(error.value)


# torch.compile: the graph that is recorded for it.


@pytest.fixture
def compiles(monkeypatch):
    """Stand in for torch.compile, which takes many seconds: the recorded graph itself is run."""
    graphs = []

    def keep(graph):
        graphs.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", keep)
    return graphs


@pytest.mark.parametrize("model", ["norm", "tied", "frozen", "preresnet", "transformer"])
def test_the_graph_for_the_compiler_computes_the_same(model, compiles):
    task = make_task(*MODELS[model])
    execution, agents = make_execution("stacked", make_setup(task, compile=True)), Agents(task)
    for step in range(3):
        batch = states(task, step), *examples(task, step)
        for found, expected in zip(execution.gradient(*batch), agents.gradient(*batch), strict=True):
            assert_close(found, expected)
        assert_same_buffers(execution.buffers, agents.buffers())
    assert len(compiles) == 1
    x, inputs = states(task, 9), examples(task, 9)[0]
    assert_close(execution.outputs(x, inputs), agents.outputs(x, inputs))


def test_the_graph_for_the_compiler_survives_it(monkeypatch):
    """As torch.compile takes it apart, short of generating code."""
    whole = torch.compile
    monkeypatch.setattr(torch, "compile", lambda graph: whole(graph, backend="aot_eager"))
    task = make_task(with_norm)
    execution, agents = make_execution("stacked", make_setup(task, compile=True)), Agents(task)
    for step in range(2):
        batch = states(task, step), *examples(task, step)
        assert_close(execution.gradient(*batch)[0], agents.gradient(*batch)[0])
        assert_same_buffers(execution.buffers, agents.buffers())


def test_recording_the_graph_moves_no_draw(compiles):
    """Else the first step after a resume would drop other units than the same step in an uninterrupted run."""
    task = make_task(with_dropout)
    source = make_source("stacked", task, compile=True)
    source.gradient(states(task), 0)
    later, first = source.gradient(states(task), 1), make_source("stacked", task, compile=True).gradient
    assert torch.equal(first(states(task), 1)[0], later[0])
    assert torch.equal(make_source("stacked", task).gradient(states(task), 1)[0], later[0])


def test_a_compiled_run_is_an_uncompiled_one(compiles):
    task = make_task(with_norm)
    plain, fused = (run_with(task, execution="stacked", compile=compile)[1] for compile in (False, True))
    assert_close(fused.x, plain.x, 1e-9)
    auto = make_training(make_settings({**small, "compile": True}), task=task)
    assert auto.settings.execution == "stacked" and compiles
    assert not auto.evaluate.execution.setup.compile


def test_a_model_that_vmap_cannot_run_is_refused_in_one_line():
    class Decides(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 3)

        def forward(self, x):
            return self.linear(x) if x.sum() > 0 else -self.linear(x)

    task = make_task(Decides)
    with pytest.raises(gm.UserError, match=r"cannot run under torch.func.vmap .* use execution=loop") as error:
        make_execution("vmap", make_setup(task)).gradient(states(task, 0), *examples(task, 0))
    assert "\n" not in str(error.value)
