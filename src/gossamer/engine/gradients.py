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
        self._global = _global_generator(torch.device(device))

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
        """Let dropout draw from the run's seed: it knows no generator but torch's global one, which is put back.

        That generator is seeded by itself, since torch.manual_seed also queues a call for every device that is not in
        use, with a traceback each time.
        """
        before = self._global.get_state()
        self._global.manual_seed(generator(self.seed, "dropout", step).initial_seed())
        try:
            yield
        finally:
            self._global.set_state(before)

    def _examples(self, indices: Int[Tensor, "n b"], x: Tensor) -> tuple[Tensor, Tensor]:
        indices = indices.to(self.examples.y.device)
        inputs = self.examples.x[indices]
        return (inputs.to(x.dtype) if inputs.is_floating_point() else inputs), self.examples.y[indices]


def _global_generator(device: torch.device) -> torch.Generator:
    """Return the generator that modules draw from on this device."""
    if device.type != "cuda":
        return torch.default_generator
    torch.cuda.init()
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]
