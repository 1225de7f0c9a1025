"""What the tests of executions share: models, tasks, batches, and the loop over plain modules that defines them."""

import pytest
import torch
from torch import nn

import gossamer as gm
from gossamer.data import partition
from gossamer.data.device_batches import DeviceBatches
from gossamer.engine import make_training
from gossamer.engine.execution import EXECUTIONS, make_execution
from gossamer.engine.execution.base import Setup
from gossamer.engine.gradients import TaskSource
from gossamer.nn import make_model
from gossamer.run.settings import make_settings

N, BATCH = 3, 5
PURPOSES = ("batches", "fresh-batches")
every_execution = pytest.mark.parametrize("name", list(EXECUTIONS))
small = {"network": "clusters:2,2", "delay": "3", "batch": 4, "epochs": 3, "lr": 0.1}


class Tied(nn.Module):
    """One weight in two places."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.head(torch.tanh(self.two(torch.tanh(self.one(x)))))


class Frozen(nn.Sequential):
    """The first layer's weight, and the last one's bias, are not to be trained."""

    def __init__(self):
        super().__init__(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        self[0].weight.requires_grad_(False)
        self[2].bias.requires_grad_(False)


def with_norm():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def with_dropout():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 3))


MODELS = {
    "preresnet": (lambda: make_model("preresnet:8", (3, 8, 8), 3), (3, 8, 8)),
    "norm": (with_norm, (6,)),
    "tied": (Tied, (6,)),
    "frozen": (Frozen, (6,)),
    "transformer": (lambda: make_model("transformer:layers=1,width=8,heads=2", (7,), 256), (7,)),
}


def make_task(model, shape=(6,), name="toy", num_train=60, **options):
    draws = torch.Generator().manual_seed(1)
    if shape == (7,):
        codes = torch.randint(0, 256, (num_train + 20, 8), generator=draws)
        x, y = codes[:, :-1], codes[:, 1:]
    else:
        x = torch.randn(num_train + 20, *shape, generator=draws)
        y = torch.randint(0, 3, (num_train + 20,), generator=draws)
        x = x + 0.5 * y.view(-1, *[1] * len(shape))
    train, test = gm.Examples(x[:num_train], y[:num_train]), gm.Examples(x[num_train:], y[num_train:])
    return gm.Task(name, model, train, test, **options)


def make_setup(task, **options):
    return Setup(task, task.fresh_module(0), **{"num_agents": N, "device": "cpu", "dtype": torch.float64, **options})


def states(task, seed=2):
    """Points that differ between agents in every parameter, norms included."""
    x = task.initial("independent", N, 0).double()
    return x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def examples(task, step):
    """A batch for each agent: inputs [N, BATCH, ...] and targets."""
    chosen = torch.randperm(len(task.train), generator=torch.Generator().manual_seed(step))[: N * BATCH]
    x, y = task.train.x[chosen].unflatten(0, (N, BATCH)), task.train.y[chosen].unflatten(0, (N, BATCH))
    return (x.double() if x.is_floating_point() else x), y


def both_batches(task, batch=BATCH, dtype=torch.float64, seed=0, **options):
    shards = partition("iid", task.train.y, N, seed)
    return [
        DeviceBatches(task.train, task.inputs, shards, batch, seed, "cpu", dtype, purpose=name, **options)
        for name in PURPOSES
    ]


def make_source(name, task, seed=0, **options):
    return TaskSource(make_execution(name, make_setup(task, **options)), *both_batches(task, seed=seed), seed)


class Agents:
    """The definition: N plain modules, each with its own parameters and buffers, one after the other."""

    def __init__(self, task):
        self.task = task
        self.modules = [task.fresh_module(0).module.double() for _ in range(N)]

    def set(self, x):
        for module, flat in zip(self.modules, x, strict=True):
            nn.utils.vector_to_parameters(flat.clone(), module.parameters())

    def loss(self, output, targets):
        return nn.functional.cross_entropy(output.reshape(-1, output.shape[-1]), targets.reshape(-1))

    def gradient(self, x, inputs, targets):
        self.set(x)
        rows, losses = [], []
        for module, one, target in zip(self.modules, inputs, targets, strict=True):
            module.train().zero_grad()
            loss = self.loss(module(one), target)
            loss.backward()
            parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in module.parameters()]
            rows.append(torch.cat([part.flatten() for part in parts]))
            losses.append(loss.detach())
        return torch.stack(rows), torch.stack(losses)

    @torch.no_grad()
    def outputs(self, x, inputs):
        self.set(x)
        return torch.stack([module.eval()(one) for module, one in zip(self.modules, inputs, strict=True)])

    def buffers(self):
        names = dict(self.modules[0].named_buffers())
        return {name: torch.stack([dict(m.named_buffers())[name] for m in self.modules]) for name in names}


def assert_close(found, expected, tolerance=1e-11):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def assert_same_buffers(found, expected):
    assert list(found) == list(expected)
    for name, buffer in expected.items():
        assert_close(found[name].double(), buffer.double())


def run_with(task, **values):
    run = make_training(make_settings({**small, "dtype": "float64", **values}), task=task)
    return run, run.run()


def padded_crop(image, dy, dx, flip):
    """From the definition: 4 zeros on each side, a crop of the old size at (dy, dx), then a mirror image."""
    channels, height, width = image.shape
    padded = torch.zeros(channels, height + 8, width + 8, dtype=image.dtype)
    padded[:, 4 : 4 + height, 4 : 4 + width] = image
    crop = padded[:, dy : dy + height, dx : dx + width]
    return crop.flip(-1) if flip else crop
