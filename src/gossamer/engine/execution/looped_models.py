"""N models one after the other: what every peer of this library does, and the measure of all others."""

import torch

from gossamer.engine.execution.base import Execution, Setup, buffers_of
from gossamer.shapes import Float, Tensor


class LoopExecution(Execution):
    """A Python loop over agents."""

    name = "loop"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        module = setup.module
        self.running = module.module.to(device=setup.device, dtype=setup.dtype)
        self.buffers = buffers_of(self.running, setup.num_agents)

    def _gradient(self, x: Float[Tensor, "n d"], inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        self.running.train()
        gradients, losses = [], []
        for agent, flat in enumerate(x):
            leaf = flat.detach().requires_grad_()
            loss = self.loss(self._run(agent, leaf, inputs[agent]), targets[agent])
            gradients.append(torch.autograd.grad(loss, leaf)[0])
            losses.append(loss.detach())
        return torch.stack(gradients), torch.stack(losses)

    def _outputs(self, x: Float[Tensor, "n d"], inputs: Tensor, *, training: bool) -> Tensor:
        self.running.train(training)
        return torch.stack([self._run(agent, flat, inputs[agent]) for agent, flat in enumerate(x)])

    def _run(self, agent: int, flat: Tensor, inputs: Tensor) -> Tensor:
        held = {name: buffer[agent] for name, buffer in self.buffers.items()}  # views, which most models move
        given = dict(held)
        output = self.setup.module(flat.to(self.setup.working_dtype), inputs, given)
        for name, buffer in given.items():
            if buffer is not held[name]:
                held[name].copy_(buffer)
        return output
