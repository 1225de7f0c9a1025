"""Curvature without a matrix: products with the Hessian, spectral norms by power iteration, the diagonal."""

from collections.abc import Callable

import torch

from gossamer.seeding import generator
from gossamer.shapes import Float, Tensor
from gossamer.theory.problem import Problem

Operator = Callable[[Tensor], Tensor]  # [..., n, d] to the same: symmetric, agent by agent

BATCH = 64  # products that are taken at once
STEADY = 10  # products in a row that change nothing: a single one may be on a plateau


def exact_gradient(problem: Problem, x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, " n"], Float[Tensor, "n d"]]:
    """Return each agent's loss without noise and its gradient."""
    leaf = x.detach().requires_grad_()
    loss = problem.loss(leaf)
    (g,) = torch.autograd.grad(loss.sum(), leaf)
    return loss.detach(), g


def hessian(problem: Problem, x: Float[Tensor, "n d"]) -> Operator:
    """Return the product of each agent's Hessian with its row of a [n, d] tensor, or of a batch of them.

    One pass through the losses serves all products.
    """
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

    ||A v|| for a unit vector v never exceeds the norm, also where two eigenvalues differ by their sign alone. It stops
    when several products in a row raise no agent's value by more than the tolerance.
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
    """Return the diagonal of each agent's block: one product a coordinate, so for small models only."""
    size = like.shape[1]
    units = torch.eye(size, dtype=like.dtype, device=like.device)
    found = []
    for some in units.split(BATCH):
        columns = operator(some[:, None, :].expand(-1, *like.shape))  # [batch, n, d]
        found.append((columns * some[:, None, :]).sum(dim=2))
    return torch.cat(found).T.contiguous()
