"""The gradients that a run takes from its task: the batches of a step, further evaluations, augmentation."""

import pytest
import torch
from torch import nn

import gossamer as gm
from executions import (
    BATCH,
    PURPOSES,
    Agents,
    N,
    assert_close,
    assert_same_buffers,
    both_batches,
    every_execution,
    make_source,
    make_task,
    padded_crop,
    small,
    states,
    with_dropout,
    with_norm,
)
from gossamer.data import AugmentDraws, Batches, Normalize, partition
from gossamer.data.device_batches import DeviceBatches
from gossamer.engine import make_training
from gossamer.engine.execution.base import only_reads
from gossamer.nn import make_model
from gossamer.run.settings import make_settings

# What a run asks a source for.


@every_execution
def test_a_source_gives_the_numbers_of_a_loop_on_the_batches_of_the_step(name):
    task = make_task(with_norm)
    source, agents = make_source(name, task), Agents(task)
    shards = partition("iid", task.train.y, N, 0)
    for step in (0, 1, 64, 7):
        x, y = states(task, step), states(task, step + 1)
        own, fresh = (
            (task.train.x[chosen].double(), task.train.y[chosen])
            for chosen in (Batches(shards, BATCH, 0, purpose).at(step) for purpose in PURPOSES)
        )
        g, loss = source.gradient(x, step)
        buffers = agents.buffers()
        expected_elsewhere = agents.gradient(y, *own)
        expected_fresh, _ = agents.gradient(y, *fresh)
        for module, row in zip(agents.modules, range(N), strict=True):  # only the step itself moves them
            for buffer_name, buffer in module.named_buffers():
                buffer.copy_(buffers[buffer_name][row])
        expected_g, expected_loss = agents.gradient(x, *own)
        assert_close(g, expected_g)
        assert_close(loss, expected_loss)
        assert_close(source.gradient_elsewhere(y, step), expected_elsewhere[0])
        assert_close(source.loss(y, step), expected_elsewhere[1])
        assert_close(source.fresh_gradient(y, step), expected_fresh)
        assert_same_buffers(source.execution.buffers, agents.buffers())


@every_execution
@pytest.mark.parametrize("ask", ["gradient_elsewhere", "loss", "fresh_gradient"])
def test_further_evaluations_leave_no_trace(name, ask):
    task = make_task(with_dropout)
    source = make_source(name, task)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    getattr(source, ask)(states(task), 0)  # before the first gradient
    assert all(torch.equal(b, b[:1].expand_as(b)) for b in source.execution.buffers.values())
    g, loss = source.gradient(states(task), 0)
    kept = [tensor.clone() for tensor in (g, loss, *source.execution.buffers.values())]
    getattr(source, ask)(states(task, 3), 0)
    after = (g, loss, *source.execution.buffers.values())
    assert all(torch.equal(a, b) for a, b in zip(kept, after, strict=True))
    assert torch.equal(torch.get_rng_state(), before)


@every_execution
def test_gradients_are_a_function_of_the_point_and_the_step_alone(name):
    task, steps = make_task(with_dropout), (0, 1, 2, 65)
    source = make_source(name, task)
    expected = {step: source.gradient(states(task, step), step) for step in steps}
    other = make_source(name, task)
    torch.manual_seed(99)
    for step in (2, 65, 0, 2, 1):
        other.loss(states(task), 1)
        other.fresh_gradient(states(task), 3)
        x = states(task, step)
        assert torch.equal(other.gradient_elsewhere(x, step), expected[step][0])
        assert all(torch.equal(a, b) for a, b in zip(other.gradient(x, step), expected[step], strict=True))
    another_seed = make_source(name, task, seed=1).gradient(states(task), 0)[0]
    assert not torch.equal(another_seed, make_source(name, task).gradient(states(task), 0)[0])


def test_dropout_draws_anew_at_every_step():
    task = make_task(with_dropout)
    source = make_source("stacked", task)
    source.batches.draw = lambda step: DeviceBatches.draw(source.batches, 0)  # the same examples
    assert not torch.equal(source.gradient(states(task), 0)[0], source.gradient(states(task), 1)[0])


def test_fresh_batches_are_others_than_those_of_the_step():
    own, fresh = both_batches(make_task(with_norm))
    assert not any(torch.equal(own.draw(step).indices, fresh.draw(step).indices) for step in range(20))


# Augmentation.


def image_task(augments=False):
    draws = torch.Generator().manual_seed(3)
    x, y = torch.randint(0, 256, (80, 3, 8, 8), generator=draws, dtype=torch.uint8), torch.arange(80) % 3
    prepare = Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.25))

    def model():
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))

    train, test = gm.Examples(x[:60], y[:60]), gm.Examples(x[60:], y[60:])
    return gm.Task("images", model, train, test, prepare=prepare, augments=augments)


def test_batches_are_the_cropped_and_flipped_raw_images_of_the_step():
    task = image_task()
    mean, std = (torch.tensor(v, dtype=torch.float64)[:, None, None] for v in (task.prepare.mean, task.prepare.std))
    plain, moving, again = (
        both_batches(task)[0],
        both_batches(task, augment=True)[0],
        both_batches(task, augment=True)[0],
    )
    draws = AugmentDraws(0, N, BATCH, "augment-batches")
    kept = {}
    for step in (0, 1, 63, 64, 130):
        inputs, targets = kept[step] = moving.load(moving.draw(step))
        chosen = plain.draw(step).indices
        assert torch.equal(targets, task.train.y[chosen]) and inputs.shape == (N, BATCH, 3, 8, 8)
        for agent in range(N):
            for place in range(BATCH):
                image = padded_crop(task.train.x[chosen[agent, place]], *draws.at(step)[agent, place].tolist())
                assert_close(inputs[agent, place], (image.double() / 255 - mean) / std)
        assert_close(plain.load(plain.draw(step))[0], (task.train.x[chosen].double() / 255 - mean) / std)
    for step in (130, 0, 64, 63, 1):  # as a resumed run would
        assert all(torch.equal(a, b) for a, b in zip(again.load(again.draw(step)), kept[step], strict=True))
    own, fresh = both_batches(task, augment=True)
    assert not torch.equal(own.draw(0).crops, fresh.draw(0).crops)


@pytest.mark.parametrize("norm_stats", ["local", "recalibrated"])
def test_augmentation_changes_training_and_never_an_evaluation(norm_stats):
    runs = {
        augment: make_training(
            make_settings({**small, "augment": augment, "norm_stats": norm_stats, "execution": "vmap"}),
            task=image_task(),
        )
        for augment in ("crop-flip", "none")
    }
    moving, plain = runs["crop-flip"], runs["none"]
    x = plain.simulation.x
    assert not torch.equal(moving.simulation.source.gradient(x, 0)[0], plain.simulation.source.gradient(x, 0)[0])
    buffers = plain.simulation.statistics.buffers
    assert moving.evaluate(x, buffers) == plain.evaluate(x, buffers)
    source, shards = moving.simulation.source, partition("iid", plain.task.train.y, 4, 0)
    expected = DeviceBatches(plain.task.train, plain.task.inputs, shards, 4, 0, "cpu", torch.float32, augment=True)
    for step in (0, 5):
        pair = zip(source.batches.load(source.batches.draw(step)), expected.load(expected.draw(step)), strict=True)
        assert all(torch.equal(a, b) for a, b in pair)


@pytest.mark.parametrize("augments", [False, True])
def test_auto_augments_where_the_task_says_so(augments):
    run = make_training(make_settings({**small, "execution": "vmap"}), task=image_task(augments))
    assert run.settings.augment == ("crop-flip" if augments else "none")
    assert (run.simulation.source.batches.draw(0).crops is not None) == augments


# A state is read where it is.


class Shrinks(nn.Module):
    """Code of one's own that changes its weights."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        with torch.no_grad():
            self.linear.weight.mul_(0.5)
        return self.linear(x)


def test_a_model_that_changes_its_weights_does_not_change_the_state():
    task = make_task(Shrinks)
    source, x = make_source("stacked", task), states(task)
    before = x.clone()
    source.gradient(x, 0)
    assert torch.equal(x, before)


def hooked():
    layer = nn.Linear(6, 3)
    layer.register_forward_pre_hook(lambda *_: None)
    return layer


@pytest.mark.parametrize(
    ("model", "reads"),
    [
        (with_norm, True),
        (lambda: make_model("preresnet:8", (3, 8, 8), 3), True),
        (lambda: make_model("transformer", (7,), 256), True),
        (lambda: nn.Embedding(5, 3), True),
        (lambda: nn.Embedding(5, 3, max_norm=1.0), False),
        (lambda: nn.Sequential(with_norm(), Shrinks()), False),
        (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)), False),
        (hooked, False),
    ],
)
def test_only_layers_of_torch_and_gossamer_are_trusted_with_the_state(model, reads):
    assert only_reads(model()) is reads


def test_a_plain_model_reads_the_state_itself():
    task = make_task(with_norm)
    source = make_source("stacked", task)
    for x in (states(task, 1), states(task, 2)):
        source.gradient(x, 0)
        first = next(iter(source.execution.network.stacked_parameters().values()))
        assert first.data_ptr() == x.data_ptr()
