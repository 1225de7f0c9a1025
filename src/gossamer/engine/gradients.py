"""Gradients of all agents in one batched evaluation: torch.func.vmap over the rows of [N, d]."""

import contextlib
from collections.abc import Iterator

import torch

from gossamer.data import Batches
from gossamer.nn import FlatModule
from gossamer.seeding import generator
from gossamer.shapes import Float, Int, Tensor
from gossamer.tasks import Task


class TaskSource:
    """The agents' losses on their own mini-batches, and their gradients (a `Source` of the simulation)."""

    offers = frozenset({"gradient", "loss", "fresh_gradient"})

    def __init__(
        self, task: Task, module: FlatModule, shards: list[Tensor], batch: int, seed: int, device: str
    ) -> None:
        self.examples = task.train.to(device)
        self.batches = Batches(shards, batch, seed)
        self.fresh_batches = Batches(shards, batch, seed, "fresh-batches")
        self.seed = seed
        self._cuda = [torch.device(device)] if torch.device(device).type == "cuda" else []

        def loss(flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return task.loss(module(flat, x), y)

        # Dropout, if the model has any, draws a mask of its own for each agent.
        self._loss = torch.func.vmap(loss, randomness="different")
        self._gradient_and_loss = torch.func.vmap(torch.func.grad_and_value(loss), randomness="different")

    def gradient(self, x: Float[Tensor, "n d"], step: int) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Return each agent's gradient and loss on its batch of this step."""
        with self._chance(step):
            gradient, loss = self._gradient_and_loss(x, *self._examples(self.batches.at(step), x))
        return gradient, loss

    def loss(self, x: Float[Tensor, "n d"], step: int) -> Float[Tensor, " n"]:
        """Return each agent's loss on its batch of this step."""
        with self._chance(step):
            value: Tensor = self._loss(x, *self._examples(self.batches.at(step), x))
        return value

    def fresh_gradient(self, x: Float[Tensor, "n d"], step: int) -> Float[Tensor, "n d"]:
        """Return each agent's gradient on a batch that the step itself does not use."""
        with self._chance(step):
            gradient: Tensor = self._gradient_and_loss(x, *self._examples(self.fresh_batches.at(step), x))[0]
        return gradient

    @contextlib.contextmanager
    def _chance(self, step: int) -> Iterator[None]:
        """Let dropout draw from the run's seed: it knows no generator but torch's global one, which is put back."""
        with torch.random.fork_rng(devices=self._cuda):
            torch.manual_seed(generator(self.seed, "dropout", step).initial_seed())
            yield

    def _examples(self, indices: Int[Tensor, "n b"], x: Tensor) -> tuple[Tensor, Tensor]:
        indices = indices.to(self.examples.y.device)
        inputs = self.examples.x[indices]
        return (inputs.to(x.dtype) if inputs.is_floating_point() else inputs), self.examples.y[indices]
