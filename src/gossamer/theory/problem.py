"""What the constants of a bound are estimated from: the agents' losses without noise, and draws of their gradients."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from gossamer.engine.training import Training
from gossamer.seeding import generator
from gossamer.shapes import Float, Tensor
from gossamer.theory.functions import Function


@runtime_checkable
class Problem(Protocol):
    """The losses of n agents at the rows of x."""

    @property
    def best(self) -> float:
        """F*, or a number that F never falls below."""

    def loss(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Return each agent's loss without noise, differentiable twice."""

    def gradient(self, x: Float[Tensor, "n d"], draw: int) -> Float[Tensor, "n d"]:
        """Return each agent's noisy gradient, as a run would see it; another draw has other noise."""


@dataclass(frozen=True)
class FunctionProblem:
    """One function that all agents minimise, with normal noise on every coordinate of a gradient.

    Attributes:
        function: what is minimised.
        num_agents: how many agents minimise it.
        noise: the standard deviation of the noise.
        seed: fixes the noise.
    """

    function: Function
    num_agents: int
    noise: float = 0.0
    seed: int = 0

    @property
    def best(self) -> float:
        """The function's minimum, once for each agent."""
        return self.num_agents * float(self.function.value(self.function.minimum))

    def loss(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Return the function at each row."""
        return self.function.value(x)

    def gradient(self, x: Float[Tensor, "n d"], draw: int) -> Float[Tensor, "n d"]:
        """Return the gradient plus noise; `gm.trajectory` takes this function as it is, with the step as the draw."""
        noise = torch.randn(x.shape, generator=generator(self.seed, "gradient-noise", draw), dtype=x.dtype)
        return self.function.gradient(x) + self.noise * noise.to(x)


class TaskProblem:
    """A training run's own losses: each agent's mean loss over its data, or over the first `examples` of it.

    Cross entropy is never negative, so that F* is taken as 0. Layers are in training mode, as in a step, but for
    dropout, which would make the loss a matter of chance. Frozen parameters have no gradient.

    Args:
        training: the run.
        examples: how many of each agent's examples are looked at.
    """

    best = 0.0

    def __init__(self, training: Training, examples: int = 512) -> None:
        self.training = training
        settings, task = training.settings, training.task
        self._module = task.fresh_module(settings.seed)
        self._module.module.to(device=settings.device, dtype=getattr(torch, settings.dtype)).train()
        for layer in self._module.module.modules():
            if isinstance(layer, nn.modules.dropout._DropoutNd):
                layer.eval()
        self._frozen = self._module.frozen.to(settings.device)
        self._shards = [shard[:examples] for shard in training.plan.shards]

    def loss(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Return each agent's mean loss over its own examples."""
        task = self.training.task
        losses = []
        for flat, shard in zip(torch.where(self._frozen, x.detach(), x), self._shards, strict=True):
            inputs = task.inputs(task.train.x[shard], x.dtype).to(x.device)
            losses.append(task.loss(self._module(flat, inputs, self._buffers()), task.train.y[shard].to(x.device)))
        return torch.stack(losses)

    def gradient(self, x: Float[Tensor, "n d"], draw: int) -> Float[Tensor, "n d"]:
        """Return each agent's gradient on a mini-batch; the run's own state stays as it is."""
        return self.training.simulation.source.fresh_gradient(x, draw)

    def _buffers(self) -> dict[str, Tensor]:
        # Copies: a training pass moves running statistics, and these are nobody's.
        return {name: buffer.clone() for name, buffer in self._module.module.named_buffers()}
