"""The ways to run N models against a loop over plain modules."""

import pytest
import torch
from torch import nn

from executions import (
    MODELS,
    Agents,
    Frozen,
    N,
    assert_close,
    assert_same_buffers,
    every_execution,
    examples,
    make_setup,
    make_task,
    run_with,
    small,
    states,
    with_dropout,
    with_norm,
)
from gossamer.engine import make_training
from gossamer.engine.execution import EXECUTIONS, make_execution
from gossamer.run.settings import make_settings


class Assigns(nn.Module):
    """Keeps a running mean by setting its buffer anew."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(dim=0)
        return self.linear(x - self.mean)


# Gradients, losses, outputs and running statistics.


@every_execution
@pytest.mark.parametrize("model", MODELS)
def test_an_execution_is_a_loop_over_plain_modules(name, model):
    task = make_task(*MODELS[model])
    execution, agents = make_execution(name, make_setup(task)), Agents(task)
    for step in range(3):
        x, batch = states(task, step), examples(task, step)
        for found, expected in zip(execution.gradient(x, *batch), agents.gradient(x, *batch), strict=True):
            assert_close(found, expected)
    inputs, _ = examples(task, 9)
    assert_same_buffers(execution.buffers, agents.buffers())
    x = states(task, 9)
    assert_close(execution.outputs(x, inputs), agents.outputs(x, inputs))
    assert_same_buffers(execution.buffers, agents.buffers())  # which an evaluation leaves alone


@every_execution
def test_dropout_is_off_in_an_evaluation_and_apart_for_agents_in_training(name):
    task = make_task(with_dropout)
    execution, agents = make_execution(name, make_setup(task)), Agents(task)
    inputs, targets = examples(task, 0)
    assert_close(execution.outputs(states(task), inputs), agents.outputs(states(task), inputs))
    alike = states(task)[:1].repeat(N, 1)
    g, _ = execution.gradient(alike, *(part[:1].expand_as(part) for part in (inputs, targets)))
    assert not any(torch.equal(g[i], g[j]) for i in range(N) for j in range(i))
    again = execution.outputs(alike, inputs[:1].expand_as(inputs))
    assert_close(again, again[:1].expand_as(again))


@every_execution
def test_a_pass_in_training_mode_without_gradients_moves_statistics_as_torch_does(name):
    task = make_task(with_norm)
    execution, agents = make_execution(name, make_setup(task)), Agents(task)
    x, (inputs, targets) = states(task), examples(task, 0)
    execution.outputs(x, inputs, training=True)
    agents.gradient(x, inputs, targets)
    assert_same_buffers(execution.buffers, agents.buffers())


@every_execution
def test_a_frozen_parameter_has_no_gradient_and_never_moves(name):
    task = make_task(Frozen)
    execution = make_execution(name, make_setup(task))
    g, _ = execution.gradient(states(task), *examples(task, 0))
    frozen = torch.cat([torch.full((p.numel(),), not p.requires_grad) for p in Frozen().parameters()])
    assert torch.equal(g[:, frozen], torch.zeros(N, 51, dtype=torch.float64)) and g[:, ~frozen].ne(0).any(dim=0).all()
    values = {**small, "algorithm": "pc-asgd", "dtype": "float64", "momentum": 0.9, "execution": name}
    run = make_training(make_settings(values), task=task)
    start = run.simulation.x.clone()
    moved = run.run().x - start
    assert moved[:, frozen].abs().max() < 1e-14 and moved[:, ~frozen].abs().max() > 1e-2


def test_weight_decay_leaves_a_frozen_parameter_alone():
    values = {**small, "algorithm": "d-asgd", "dtype": "float64", "weight_decay": 0.1, "execution": "vmap"}
    run = make_training(make_settings(values), task=make_task(Frozen))
    start = run.simulation.x.clone()
    assert (run.run().x - start)[:, :48].abs().max() < 1e-14


@pytest.mark.parametrize("name", ["stacked", "vmap", "loop"])
def test_a_buffer_that_the_model_sets_anew_is_kept(name):
    task = make_task(Assigns)
    execution, agents = make_execution(name, make_setup(task)), Agents(task)
    for step in range(3):
        batch = states(task, step), *examples(task, step)
        assert_close(execution.gradient(*batch)[0], agents.gradient(*batch)[0])
    assert_same_buffers(execution.buffers, agents.buffers())


# Whole runs.


@pytest.mark.parametrize("norm_stats", ["local", "mixed", "recalibrated"])
def test_runs_end_alike_whatever_the_execution(norm_stats):
    task = make_task(with_norm)
    rule = {"algorithm": "pc-asgd", "theta": "pv", "test_batch": "fresh", "momentum": 0.9, "norm_stats": norm_stats}
    (first, result), *others = (run_with(task, execution=name, **rule) for name in EXECUTIONS)
    assert result.summary["iterations"] == 12 and 0 < result.summary["predict_fraction"] < 1
    for other, same in others:
        assert_close(same.x, result.x, 1e-9)
        for name, buffer in first.simulation.statistics.buffers.items():
            assert_close(other.simulation.statistics.buffers[name].double(), buffer.double(), 1e-9)
        for row, expected in zip(same.history, result.history, strict=True):
            assert row["loss"] == pytest.approx(expected["loss"], rel=1e-9)
            assert row["loss_average_model"] == pytest.approx(expected["loss_average_model"], rel=1e-9)
            assert row["accuracy"] == expected["accuracy"]
