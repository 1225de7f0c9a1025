"""The workloads of the benchmarks: models on random data, made from a seed."""

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gossamer.bench.cases import Request
from gossamer.bench.measure import Contestant
from gossamer.data import Examples, Normalize, partition
from gossamer.data.device_batches import DeviceBatches
from gossamer.engine.make_training import make_training
from gossamer.engine.training import Training
from gossamer.errors import StabilityWarning
from gossamer.network import network
from gossamer.nn import make_model
from gossamer.run.machine import arithmetic
from gossamer.run.merge_settings import merge_settings
from gossamer.run.settings import Settings
from gossamer.seeding import generator
from gossamer.shapes import Tensor
from gossamer.tasks import Task

SEED = 0
CLASSES, BYTES = 10, 256
LEARNING_RATE = 1e-4  # small, because a loss that is not finite would end the run
NORMALIZE = {
    3: Normalize(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)),  # as CIFAR-10
    1: Normalize(mean=(0.1307,), std=(0.3081,)),  # as MNIST
}


@dataclass(frozen=True)
class Workload:
    """A model, a network and a batch size; images have the shape (channels, height, width), texts (bytes,)."""

    model: str
    network: str
    batch: int
    delay: int
    shape: tuple[int, ...] = (3, 32, 32)
    examples: int = 50_000  # as many as CIFAR-10 has

    def task(self) -> Task:
        """Make the task: images as bytes, then normalised; coloured images are cropped and flipped. Or texts."""
        train, test = (self._examples(count, purpose) for count, purpose in ((self.examples, "train"), (64, "test")))
        if self.is_text:
            return Task("random", self.module, train, test, self.model)
        prepare, coloured = NORMALIZE[self.shape[0]], self.shape[0] == 3
        return Task("random", self.module, train, test, self.model, prepare=prepare, augments=coloured)

    def module(self) -> nn.Module:
        """Make the model; its random start uses torch's global generator, as a task expects."""
        return make_model(self.model, self.shape, BYTES if self.is_text else CLASSES)

    @property
    def is_text(self) -> bool:
        """Whether the model reads bytes and predicts each next one."""
        return len(self.shape) == 1

    @property
    def num_agents(self) -> int:
        """How many models are trained."""
        return network(self.network).num_agents

    def describe(self, request: Request, training: Training, *, delay: bool = True) -> str:
        """Return one line that describes the run."""
        return (
            f"{self.model}, {training.simulation.x.shape[1]:,} parameters, {self.num_agents} agents ({self.network}), "
            f"batch {self.batch}, {f'delay {self.delay}, ' if delay else ''}precision {request.precision}, "
            f"execution {training.settings.execution}"
        )

    def _examples(self, count: int, purpose: str) -> Examples:
        draws = generator(SEED, f"bench-{purpose}")
        if self.is_text:
            texts = torch.randint(BYTES, (count, self.shape[0] + 1), generator=draws)
            return Examples(texts[:, :-1], texts[:, 1:])
        x = torch.randint(256, (count, *self.shape), generator=draws, dtype=torch.uint8)
        return Examples(x, torch.randint(CLASSES, (count,), generator=draws))

    def settings(self, request: Request, algorithm: str = "pc-asgd/theta=0.3", **more: Any) -> Settings:
        """Return the settings of a run that is longer than any measurement."""
        return merge_settings(
            {
                "network": self.network,
                "delay": str(self.delay),
                "batch": self.batch,
                "lr": LEARNING_RATE,
                "epochs": 1_000_000,
                "seed": SEED,
                "device": request.device,
                "precision": request.precision,
                "threads": request.threads,
                "algorithm": algorithm,
                **more,
            }
        )

    def training(self, request: Request, task: Task, algorithm: str = "pc-asgd/theta=0.3", **more: Any) -> Training:
        """Build the run without warnings: divergence does not matter here."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StabilityWarning)
            return make_training(self.settings(request, algorithm, **more), task=task)

    def with_delay(self, delay: int) -> "Workload":
        """Return the same workload with another delay."""
        return dataclasses.replace(self, delay=delay)

    def batch_of(self, request: Request, task: Task) -> tuple[Tensor, Tensor]:
        """Return the agents' first batch in float32 on the device: [n, b, …] and [n, b]."""
        shards = partition("iid", task.train.y, self.num_agents, SEED)
        batches = DeviceBatches(
            task.train, task.inputs, shards, self.batch, SEED, request.device, torch.float32, augment=task.augments
        )
        return batches.load(batches.draw(0))


def contestant(training: Training, label: str, steps: int, warm_up: int) -> Contestant:
    """Return the complete iteration of a run as a contestant."""
    return Contestant(label, training.simulation.step, warm_up, steps, lambda: arithmetic(training.settings))


@contextlib.contextmanager
def generous(request: Request) -> Iterator[None]:
    """Give rivals in float32 the fastest arithmetic: TF32, and the fastest convolutions."""
    with arithmetic(Settings(precision="tf32", threads=request.threads, device=request.device)):
        yield
