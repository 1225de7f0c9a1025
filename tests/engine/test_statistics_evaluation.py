"""Evaluations with running statistics: each agent's, their mean, or taken anew from a few batches."""

import pytest
import torch
from torch import nn

from gossamer.engine.metrics import CALIBRATION_BATCHES
from norms import BATCH, N, batches_of, make_task, module_of, training


def measured(run, module):
    with torch.no_grad():
        outputs = module.eval()(run.task.test.x.double())
    accuracy = (outputs.argmax(dim=1) == run.task.test.y).double().mean()
    return float(accuracy), float(nn.functional.cross_entropy(outputs, run.task.test.y))


def assert_row(run, row, modules, average):
    expected = [measured(run, module) for module in modules]
    assert row["accuracy"] == pytest.approx([accuracy for accuracy, _ in expected])
    assert row["loss"] == pytest.approx([loss for _, loss in expected], rel=1e-9)
    found = row["accuracy_average_model"], row["loss_average_model"]
    assert found == pytest.approx(measured(run, average), rel=1e-9)


def some_steps(**values):
    run = training(init="independent", partition="classes:2", **values)
    for _ in range(7):
        run.simulation.step()
    return run, run.simulation.x, run.simulation.statistics.buffers


@pytest.mark.parametrize("execution", ["stacked", "vmap", "loop"])
@pytest.mark.parametrize("norm_stats", ["local", "mixed"])
def test_agents_are_evaluated_with_their_statistics_and_the_average_with_the_mean_of_them(norm_stats, execution):
    run, x, buffers = some_steps(algorithm="d-asgd", norm_stats=norm_stats, execution=execution)
    row = run.evaluate(x, buffers)
    modules = [module_of(run, x[i], {name: buffer[i] for name, buffer in buffers.items()}) for i in range(N)]
    mean = {name: (b.mean(dim=0) if b.is_floating_point() else b[0]) for name, b in buffers.items()}
    assert_row(run, row, modules, module_of(run, x.mean(dim=0), mean))


def calibrated(run, flat, batches):
    """A module whose statistics are plain averages over batches of the batches' own means and variances."""
    module, seen = module_of(run, flat).train(), {"norm": [], "last": []}
    for name, inputs in seen.items():
        module.get_submodule(name).register_forward_pre_hook(lambda _, given, inputs=inputs: inputs.append(given[0]))
    for batch in batches:
        module(batch)
    for name, inputs in seen.items():
        layer = module.get_submodule(name)
        layer.running_mean.copy_(torch.stack([h.mean(dim=0) for h in inputs]).mean(dim=0).detach())
        unbiased = [((h - h.mean(dim=0)) ** 2).sum(dim=0) / (len(h) - 1) for h in inputs]
        layer.running_var.copy_(torch.stack(unbiased).mean(dim=0).detach())
        layer._forward_pre_hooks.clear()
    return module


@pytest.mark.parametrize("execution", ["stacked", "vmap", "loop"])
def test_recalibrated_statistics_are_averages_over_a_few_batches(execution, monkeypatch):
    run, x, buffers = some_steps(algorithm="d-asgd", norm_stats="recalibrated", execution=execution)
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    shown, outputs = [], run.evaluate.execution.outputs

    def spy(parameters, inputs, *, training=False):
        if training:
            shown.append(inputs.clone())
        return outputs(parameters, inputs, training=training)

    monkeypatch.setattr(run.evaluate.execution, "outputs", spy)
    row = run.evaluate(x, {name: torch.full_like(buffer, 7) for name, buffer in buffers.items()})  # which do not count
    assert len(shown) == CALIBRATION_BATCHES
    batch = batches_of(run, "calibration")
    given = [batch(step) for step in range(CALIBRATION_BATCHES)]
    assert all(torch.equal(inputs[:-1], expected) for inputs, expected in zip(shown, given, strict=True))
    modules = [calibrated(run, x[i], [inputs[i] for inputs in given]) for i in range(N)]
    average = calibrated(run, x.mean(dim=0), [inputs[-1] for inputs in shown])
    assert_row(run, row, modules, average)
    for inputs in shown:  # the average sees some of every agent's
        held = [any(torch.equal(one, other) for one in inputs[-1] for other in inputs[i]) for i in range(N)]
        assert all(held) and len(inputs[-1]) == BATCH
    assert all(torch.equal(buffers[name], value) for name, value in before.items())
    assert run.evaluate(x, buffers) == row  # a second time: nothing is left over from the first


@pytest.mark.parametrize("norm_stats", ["local", "mixed", "recalibrated"])
def test_an_evaluation_leaves_no_trace_in_the_run(norm_stats):
    often, seldom = (
        training(algorithm="pc-asgd", norm_stats=norm_stats, epochs=3, eval_every=every) for every in (1, 0)
    )
    one, other = often.run(), seldom.run()
    assert len(one.history) > len(other.history) and torch.equal(one.x, other.x)
    for name, buffer in often.simulation.statistics.buffers.items():
        assert torch.equal(buffer, seldom.simulation.statistics.buffers[name])
    assert one.history[-1]["loss"] == other.history[-1]["loss"]


def test_a_calibration_with_dropout_repeats_and_leaves_the_global_generator_alone():
    def model():
        return nn.Sequential(
            nn.Linear(5, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)
        )

    run = training(make_task(model), algorithm="d-asgd", norm_stats="recalibrated")
    x, buffers = run.simulation.x, run.simulation.statistics.buffers
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = run.evaluate(x, buffers)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    assert run.evaluate(x, buffers) == first
