"""Runs the models of some of the agents: a stacked model is made for a fixed number, so they are run in groups."""

import dataclasses
from collections.abc import Sequence

import torch

from gossamer.engine.execution.base import Execution, Setup
from gossamer.engine.execution.choice import make_execution
from gossamer.engine.execution.unstacked import VmapExecution
from gossamer.shapes import Float, Tensor


class SomeAgents:
    """Gradients of any number of agents, with the buffers of the execution of all."""

    def __init__(self, setup: Setup, everyone: Execution) -> None:
        self._setup, self.everyone = setup, everyone
        self._of_size: dict[int, Execution] = {setup.num_agents: everyone}

    def gradient(
        self, x: Float[Tensor, "a d"], agents: Sequence[int], inputs: Tensor, targets: Tensor
    ) -> tuple[Float[Tensor, "a d"], Float[Tensor, " a"]]:
        """Return each agent's gradient and loss. This updates the agents' running statistics."""
        if len(agents) == self._setup.num_agents:
            return self.everyone.gradient(x, inputs, targets)
        g, losses, first = torch.empty_like(x), [], 0
        for size in self._sizes(len(agents)):
            rows = slice(first, first + size)
            g[rows], loss = self._group(x[rows], agents[rows], inputs[rows], targets[rows])
            losses.append(loss)
            first += size
        return g, torch.cat(losses)

    def _group(
        self, x: Float[Tensor, "a d"], agents: Sequence[int], inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        if len(x) not in self._of_size:
            setup = dataclasses.replace(self._setup, num_agents=len(x), compile=False)
            self._of_size[len(x)] = make_execution(self.everyone.name, setup)
        execution, chosen = self._of_size[len(x)], torch.tensor(agents, device=x.device)
        for name, buffer in execution.buffers.items():
            buffer.copy_(self.everyone.buffers[name][chosen])
        x = x if execution.only_reads else x.clone()
        g, loss = execution.gradient(x.contiguous(), inputs, targets)
        for name, buffer in execution.buffers.items():
            self.everyone.buffers[name][chosen] = buffer
        return g, loss

    def _sizes(self, count: int) -> list[int]:
        """Return the sizes of the groups: powers of two, so that there are few models; torch.func.vmap takes any."""
        if isinstance(self.everyone, VmapExecution) and not self.everyone.buffers:
            return [count]
        return [1 << place for place in reversed(range(count.bit_length())) if count >> place & 1]
