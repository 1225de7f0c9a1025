"""Gradients of all agents on their mini-batches: batches and execution are recorded together on a GPU."""

import torch

from gossamer.data.device_batches import DeviceBatches, Draw
from gossamer.engine.cuda_graph import Recorded
from gossamer.engine.execution import Execution
from gossamer.seeding import drawing_from
from gossamer.shapes import Float, Tensor


class TaskSource:
    """The agents' losses on their own mini-batches, and their gradients (a `Source` of the simulation)."""

    offers = frozenset({"gradient", "loss", "fresh_gradient"})

    def __init__(self, execution: Execution, batches: DeviceBatches, fresh_batches: DeviceBatches, seed: int) -> None:
        self.execution, self.batches, self.fresh_batches, self.seed = execution, batches, fresh_batches, seed
        self._recorded: Recorded | None = None

    def gradient(self, x: Float[Tensor, "n d"], step: int) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Return each agent's gradient and loss on its batch of this step. This updates the running statistics."""
        return self._evaluate(x, self.batches.draw(step), step)

    def gradient_elsewhere(self, x: Float[Tensor, "n d"], step: int) -> Float[Tensor, "n d"]:
        """Return each agent's gradient at another point, on its batch of this step."""
        return self._evaluate_apart(x, self.batches.draw(step), step)[0]

    def loss(self, x: Float[Tensor, "n d"], step: int) -> Float[Tensor, " n"]:
        """Return each agent's loss on its batch of this step."""
        return self._evaluate_apart(x, self.batches.draw(step), step)[1]

    def fresh_gradient(self, x: Float[Tensor, "n d"], step: int) -> Float[Tensor, "n d"]:
        """Return each agent's gradient on a second batch, which the step itself does not use."""
        return self._evaluate_apart(x, self.fresh_batches.draw(step), step)[0]

    def _evaluate(self, x: Float[Tensor, "n d"], draw: Draw, step: int) -> tuple[Tensor, Tensor]:
        with drawing_from(x.device, self.seed, "dropout", step):
            if not x.is_cuda:  # the models read x itself, unless their code might change it
                own = self.execution.parameters
                return self._run(x if self.execution.only_reads else own.copy_(x), *draw.tensors)
            if self._recorded is None:
                places = [self.execution.parameters, *(torch.empty_like(tensor) for tensor in draw.tensors)]
                self._recorded = Recorded(self._run, places, list(self.execution.buffers.values()))
            result: tuple[Tensor, Tensor] = self._recorded(x, *draw.tensors)
        return result

    def _run(self, x: Tensor, *draw: Tensor) -> tuple[Tensor, Tensor]:
        return self.execution.gradient(x, *self.batches.load(Draw(*draw)))

    def _evaluate_apart(self, x: Float[Tensor, "n d"], draw: Draw, step: int) -> tuple[Tensor, Tensor]:
        """Evaluate without side effects: restore the running statistics and the step's own gradient."""
        kept = [*self.execution.buffers.values(), *self._results]
        before = [tensor.clone() for tensor in kept]
        g, loss = self._evaluate(x, draw, step)
        if self._recorded is not None:
            g, loss = g.clone(), loss.clone()
        for tensor, value in zip(kept, before, strict=True):
            tensor.copy_(value)
        return g, loss

    @property
    def _results(self) -> tuple[Tensor, ...]:
        """The results that a recording overwrites at the next call."""
        return () if self._recorded is None else self._recorded.results
