"""Test functions with known minima, to study a rule without data: Rosenbrock, Rastrigin and a quadratic."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from gossamer.shapes import Float, Tensor

STEEPNESS = 100.0  # Rosenbrock's b
RIPPLE = 10.0  # Rastrigin's A


@dataclass(frozen=True, eq=False)  # == of tensors is no bool
class Function:
    """A function of the last dimension of x.

    Attributes:
        name: the name of the function.
        value: its values, from [..., d] to [...].
        gradient: its gradients, from [..., d] to [..., d].
        minimum: the point of its minimum.
        start: the point at which runs start.
    """

    name: str
    value: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor], Tensor]
    minimum: Float[Tensor, " d"]
    start: Float[Tensor, " d"]


def rosenbrock(scale: float = 1.0) -> Function:
    """Return scale * sum_i 100 (x_{i+1} - x_i^2)^2 + (1 - x_i)^2: a bent valley with steep walls.

    At the minimum the wall is 2500 times as curved as the floor, at any scale.

    Args:
        scale: multiplies the function.
    """

    def value(x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows"]:
        first, off = x[..., :-1], x[..., 1:] - x[..., :-1].square()
        return scale * (STEEPNESS * off.square() + (1 - first).square()).sum(dim=-1)

    def gradient(x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        first, off = x[..., :-1], x[..., 1:] - x[..., :-1].square()
        g = torch.zeros_like(x)
        g[..., :-1] = -4 * STEEPNESS * first * off - 2 * (1 - first)
        g[..., 1:] += 2 * STEEPNESS * off
        return scale * g

    return Function("rosenbrock", value, gradient, minimum=_point(1.0, 1.0), start=_point(-1.2, 1.0))


def rastrigin(scale: float = 1.0) -> Function:
    """Return scale * sum_i x_i^2 + 10 (1 - cos 2 pi x_i): a bowl with a local minimum near every whole number.

    Its curvature lies between 2 - 40 pi^2 and 2 + 40 pi^2 = 396.8 times the scale.

    Args:
        scale: multiplies the function.
    """
    turn = 2 * math.pi

    def value(x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows"]:
        return scale * (x.square() + RIPPLE * (1 - torch.cos(turn * x))).sum(dim=-1)

    def gradient(x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        return scale * (2 * x + turn * RIPPLE * torch.sin(turn * x))

    return Function("rastrigin", value, gradient, minimum=_point(0.0, 0.0), start=_point(2.2, -1.3))


def quadratic(curvature: float = 1.0) -> Function:
    """Return curvature / 2 * ||x||^2, for which results can be computed by hand.

    Args:
        curvature: the same in all directions.
    """

    def value(x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows"]:
        return curvature / 2 * x.square().sum(dim=-1)

    def gradient(x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        return curvature * x

    return Function("quadratic", value, gradient, minimum=_point(0.0, 0.0), start=_point(1.0, -2.0))


# By name; the argument multiplies the function.
FUNCTIONS: dict[str, Callable[[float], Function]] = {
    "rosenbrock": rosenbrock,
    "rastrigin": rastrigin,
    "quadratic": quadratic,
}


def _point(*coordinates: float) -> Float[Tensor, " d"]:
    return torch.tensor(coordinates, dtype=torch.float64)
