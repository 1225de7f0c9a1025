"""N models that share one module: under torch.func.vmap, or one after the other in a Python loop."""

import contextlib
from collections.abc import Iterator

import torch

from gossamer.engine.execution.base import Execution, Setup, buffers_of
from gossamer.errors import UserError
from gossamer.nn.stack.stacked import OF_VMAP
from gossamer.shapes import Float, Tensor

Buffers = dict[str, Tensor]


class _OneModule(Execution):
    """One module, run with the parameters and buffers of each agent."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        module = setup.module
        self.running = module.module.to(device=setup.device, dtype=setup.dtype)
        self.buffers = buffers_of(self.running, setup.num_agents)


class LoopExecution(_OneModule):
    """A Python loop over agents, as in other libraries: the baseline of the other executions."""

    name = "loop"

    def _gradient(self, x: Float[Tensor, "n d"], inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        self.running.train()
        g, losses = torch.empty_like(x), []
        for agent, flat in enumerate(x):
            leaf = flat.detach().requires_grad_()
            loss = self.loss(self._run(agent, leaf, inputs[agent]), targets[agent])
            g[agent] = torch.autograd.grad(loss, leaf)[0]
            losses.append(loss.detach())
        return g, torch.stack(losses)

    def _outputs(self, x: Float[Tensor, "n d"], inputs: Tensor, *, training: bool) -> Tensor:
        self.running.train(training)
        return torch.stack([self._run(agent, flat, inputs[agent]) for agent, flat in enumerate(x)])

    def _run(self, agent: int, flat: Tensor, inputs: Tensor) -> Tensor:
        held = {name: buffer[agent] for name, buffer in self.buffers.items()}  # views; most models update them in place
        given = dict(held)
        output = self.setup.module(flat.to(self.setup.working_dtype), inputs, given)
        for name, buffer in given.items():
            if buffer is not held[name]:
                held[name].copy_(buffer)
        return output


class VmapExecution(_OneModule):
    """torch.func.vmap over the rows of [N, d]: a shorter set-up than stacking, and as fast for tiny models."""

    name = "vmap"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        module = setup.module

        def loss(flat: Tensor, buffers: Buffers, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Buffers]:
            outputs, moved = run(flat, buffers, inputs)
            return self.loss(outputs, targets), moved

        def run(flat: Tensor, buffers: Buffers, inputs: Tensor) -> tuple[Tensor, Buffers]:
            # Inputs of a transform cannot be changed in place.
            moved = {name: buffer.clone() for name, buffer in buffers.items()}
            return module(flat.to(setup.working_dtype), inputs, moved), moved

        # Dropout draws a different mask for each agent.
        self._gradient_and_loss = torch.func.vmap(torch.func.grad_and_value(loss, has_aux=True), randomness="different")
        self._run = torch.func.vmap(run, randomness="different")

    def _gradient(self, x: Float[Tensor, "n d"], inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        self.running.train()
        with self._vmap_errors():
            gradient, (loss, moved) = self._gradient_and_loss(x, self.buffers, inputs, targets)
        self._keep(moved)
        return gradient, loss

    def _outputs(self, x: Float[Tensor, "n d"], inputs: Tensor, *, training: bool) -> Tensor:
        self.running.train(training)
        outputs: Tensor
        with self._vmap_errors():
            outputs, moved = self._run(x, self.buffers, inputs)
        if training:
            self._keep(moved)
        return outputs

    @contextlib.contextmanager
    def _vmap_errors(self) -> Iterator[None]:
        """Turn vmap's error about a model that it cannot run into one line with a remedy."""
        try:
            yield
        except RuntimeError as error:
            if not OF_VMAP.search(str(error)):
                raise
            reason = str(error).strip().splitlines()[0].split(". ")[0].rstrip(".")
            name = type(self.running).__name__
            raise UserError(f"{name} cannot run under torch.func.vmap ({reason}); use execution=loop") from error

    def _keep(self, moved: Buffers) -> None:
        for name, value in moved.items():
            self.buffers[name].copy_(value)
