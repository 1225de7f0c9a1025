"""Gradients of all agents in one batched evaluation: torch.func.vmap over the rows of [N, d]."""

import torch

from gossamer.data import Batches
from gossamer.nn import FlatModule
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

        def loss(flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return task.loss(module(flat, x), y)

        # Dropout, if the model has any, draws a mask of its own for each agent.
        self._loss = torch.func.vmap(loss, randomness="different")
        self._gradient_and_loss = torch.func.vmap(torch.func.grad_and_value(loss), randomness="different")

    def gradient(self, x: Float[Tensor, "n d"], step: int) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Return each agent's gradient and loss on its batch of this step."""
        gradient, loss = self._gradient_and_loss(x, *self._examples(self.batches.at(step), x))
        return gradient, loss

    def loss(self, x: Float[Tensor, "n d"], step: int) -> Float[Tensor, " n"]:
        """Return each agent's loss on its batch of this step."""
        value: Tensor = self._loss(x, *self._examples(self.batches.at(step), x))
        return value

    def fresh_gradient(self, x: Float[Tensor, "n d"], step: int) -> Float[Tensor, "n d"]:
        """Return each agent's gradient on a batch that the step itself does not use."""
        gradient: Tensor = self._gradient_and_loss(x, *self._examples(self.fresh_batches.at(step), x))[0]
        return gradient

    def _examples(self, indices: Int[Tensor, "n b"], x: Tensor) -> tuple[Tensor, Tensor]:
        indices = indices.to(self.examples.y.device)
        inputs = self.examples.x[indices]
        return (inputs.to(x.dtype) if inputs.is_floating_point() else inputs), self.examples.y[indices]
