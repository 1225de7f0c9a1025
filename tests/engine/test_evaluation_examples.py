"""Evaluations on some of the test examples, and how many there are at once."""

import pytest
import torch
from torch import nn

import gossamer as gm
from executions import MODELS, make_setup, make_task
from gossamer.engine import metrics
from gossamer.engine.execution import make_execution
from gossamer.engine.metrics import evaluation_batch
from runs import training, without_seconds

COUNT = 40


def losses(run, x, examples):
    """The loss of every agent's softmax regression, in float64."""
    weight, bias = x.double().split([640, 10], dim=1)
    inputs, targets = run.task.inputs(run.task.test.x, torch.float64)[examples], run.task.test.y[examples]
    return [
        float(nn.functional.cross_entropy(inputs @ w.view(10, 64).T + b, targets))
        for w, b in zip(weight, bias, strict=True)
    ]


def test_rows_before_the_last_are_on_the_same_random_examples_and_the_last_is_on_all():
    run, plain = (training(algorithm="d-asgd", epochs=2, eval_every=8, eval_examples=count) for count in (COUNT, 0))
    states = []
    result = run.run(on_step=lambda t, row: states.append(run.simulation.x) if row is not None else None)
    sample = run.task.test_sample(COUNT, 0)
    assert len(set(sample.tolist())) == COUNT and torch.equal(sample, run.task.test_sample(COUNT, 0))
    assert not torch.equal(sample, run.task.test_sample(COUNT, 1))
    for row, x in zip(result.history[1:-1], states[:-1], strict=True):
        assert row["loss"] == pytest.approx(losses(run, x, sample), rel=1e-5)
    everything = torch.arange(len(run.task.test))
    assert result.history[-1]["loss"] == pytest.approx(losses(run, states[-1], everything), rel=1e-5)
    whole = plain.run()
    assert torch.equal(whole.x, result.x) and without_seconds(whole.history)[-1] == without_seconds(result.history)[-1]
    assert whole.summary["accuracy_mean"] == result.summary["accuracy_mean"]


def test_a_run_that_diverges_ends_with_all_examples(monkeypatch):
    run, counts = training(algorithm="d-asgd", lr=1e38, eval_every=1000, eval_examples=COUNT), []
    real = run.evaluate._accuracy_and_loss
    monkeypatch.setattr(
        run.evaluate, "_accuracy_and_loss", lambda chosen: (counts.append(len(chosen)), real(chosen))[1]
    )
    assert run.run().summary["status"].startswith("the loss of agent")
    assert counts == [COUNT, 359]


def test_more_examples_than_there_are_mean_all():
    assert len(training(algorithm="d-asgd").task.test_sample(10**6, 0)) == 359


def test_a_negative_number_of_examples_is_refused():
    with pytest.raises(gm.UserError, match="eval_examples must be 0 or more, got -1"):
        training(algorithm="d-asgd", eval_examples=-1)


def test_linear_layers_are_evaluated_on_many_examples_at_once_and_others_on_as_many_as_ever():
    def batch(model, num_agents, shape=(6,)):
        return evaluation_batch(make_execution("stacked", make_setup(make_task(model, shape), num_agents=num_agents)))

    usual = metrics.EVALUATION_EXAMPLES // 64
    assert batch(*MODELS["preresnet"][:1], 64, (3, 8, 8)) == usual
    assert batch(lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), 64) == metrics.LARGE_BATCH
    wide = batch(lambda: nn.Sequential(nn.Linear(6, 1024), nn.Linear(1024, 3)), 64)
    assert usual < wide and wide * 64 * 1024 <= metrics.LARGEST_OUTPUTS
    assert batch(lambda: nn.Linear(6, 3), 2) == metrics.EVALUATION_EXAMPLES // 2
