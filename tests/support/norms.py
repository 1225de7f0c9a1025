"""What the tests of running statistics share: a model with two batch norms, its task, its batches by definition."""

import torch
from torch import nn

import gossamer as gm
from gossamer.data import Batches, partition
from gossamer.engine import make_training
from gossamer.run.settings import make_settings

N, BATCH = 4, 6
BASE = {"network": "clusters:2,2", "delay": "3", "batch": BATCH, "epochs": 8, "lr": 0.1, "dtype": "float64"}


class Net(nn.Module):
    """Two batch norms, of which the second depends on the first."""

    def __init__(self):
        super().__init__()
        self.one, self.norm = nn.Linear(5, 6), nn.BatchNorm1d(6)
        self.two, self.last = nn.Linear(6, 4), nn.BatchNorm1d(4, momentum=0.3)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.last(self.two(torch.relu(self.norm(self.one(x))))))


def make_task(model=Net):
    draws = torch.Generator().manual_seed(4)
    y = torch.arange(120) % 3
    x = torch.randn(120, 5, generator=draws) + 1.5 * torch.randn(3, 5, generator=draws)[y]
    return gm.Task("toy", model, gm.Examples(x[:90], y[:90]), gm.Examples(x[90:], y[90:]))


def training(task=None, **values):
    return make_training(make_settings({**BASE, "execution": "vmap", **values}), task=task or make_task())


def batches_of(run, purpose="batches"):
    """The inputs of all agents at a step, from the definition."""
    settings, task = run.settings, run.task
    shards = partition(settings.partition, task.train.y, N, settings.seed)
    drawn = Batches(shards, settings.batch, settings.seed, purpose)
    return lambda step: task.train.x[drawn.at(step)].double()


def module_of(run, flat, buffers=None):
    module = run.task.fresh_module(0).module.double()
    nn.utils.vector_to_parameters(flat.clone(), module.parameters())
    for name, buffer in module.named_buffers():
        if buffers is not None:
            buffer.copy_(buffers[name])
    return module
