"""The losses of the agents, draws of their gradients, and their curvature.

Curvature takes no matrix: products with the Hessian, spectral norms by power iteration, the diagonal.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from gossamer.engine.training import Training
from gossamer.seeding import generator
from gossamer.shapes import Float, Tensor
from gossamer.theory.functions import Function

Operator = Callable[[Tensor], Tensor]  # [..., n, d] to the same: symmetric, agent by agent

BATCH = 64  # products computed at once
STEADY = 10  # products in a row without a change before power iteration stops: one may be a plateau


@runtime_checkable
class Problem(Protocol):
    """The losses of n agents at the rows of x."""

    @property
    def best(self) -> float:
        """F*, or a lower bound of F."""

    def loss(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Return each agent's loss without noise, twice differentiable."""

    def gradient(self, x: Float[Tensor, "n d"], draw: int) -> Float[Tensor, "n d"]:
        """Return each agent's noisy gradient, as a run sees it; each draw has its own noise."""


@dataclass(frozen=True)
class FunctionProblem:
    """One function that all agents minimise, with normal noise on every coordinate of a gradient.

    Attributes:
        function: the function to minimise.
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

    Cross entropy is never negative, so F* is taken as 0. Layers are in training mode, except dropout, which would make
    the loss random. Frozen parameters have no gradient.

    Args:
        training: the run.
        examples: how many examples of each agent are used.
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
        """Return each agent's gradient on a mini-batch; the state of the run does not change."""
        return self.training.simulation.source.fresh_gradient(x, draw)

    def _buffers(self) -> dict[str, Tensor]:
        # Copies, because a training pass changes running statistics.
        return {name: buffer.clone() for name, buffer in self._module.module.named_buffers()}


def exact_gradient(problem: Problem, x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, " n"], Float[Tensor, "n d"]]:
    """Return each agent's loss without noise and its gradient."""
    leaf = x.detach().requires_grad_()
    loss = problem.loss(leaf)
    (g,) = torch.autograd.grad(loss.sum(), leaf)
    return loss.detach(), g


def hessian(problem: Problem, x: Float[Tensor, "n d"]) -> Operator:
    """Return a function that multiplies each agent's Hessian by its row of a [n, d] tensor, or of a batch of them."""
    leaf = x.detach().requires_grad_()
    (g,) = torch.autograd.grad(problem.loss(leaf).sum(), leaf, create_graph=True)

    def product(v: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        if not g.requires_grad:  # linear losses have no curvature
            return torch.zeros_like(v)
        (result,) = torch.autograd.grad(g, leaf, v, retain_graph=True, is_grads_batched=v.dim() == 3)
        return result.detach()

    return product


def spectral_norm(
    operator: Operator, like: Float[Tensor, "n d"], *, iterations: int = 200, tolerance: float = 1e-4, seed: int = 0
) -> Float[Tensor, " n"]:
    """Return the largest absolute eigenvalue of each agent's block, by power iteration.

    ||A v|| for a unit vector v never exceeds the norm, even if two eigenvalues differ only in sign. It stops when
    several products in a row change no agent's value by more than the tolerance.
    """
    v = torch.randn(like.shape, generator=generator(seed, "power-iteration"), dtype=torch.float64).to(like)
    norm = torch.zeros(len(like), dtype=like.dtype, device=like.device)
    steady = 0
    for _ in range(iterations):
        v = v / v.norm(dim=1, keepdim=True).clamp(min=torch.finfo(v.dtype).tiny)
        v = operator(v)
        before, norm = norm, v.norm(dim=1)
        steady = steady + 1 if bool(((norm - before).abs() <= tolerance * norm).all()) else 0
        if steady == STEADY:
            break
    return norm


def diagonal(operator: Operator, like: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Return the diagonal of each agent's block; one product per coordinate, so only for small models."""
    size = like.shape[1]
    units = torch.eye(size, dtype=like.dtype, device=like.device)
    found = []
    for some in units.split(BATCH):
        columns = operator(some[:, None, :].expand(-1, *like.shape))  # [batch, n, d]
        found.append((columns * some[:, None, :]).sum(dim=2))
    return torch.cat(found).T.contiguous()
