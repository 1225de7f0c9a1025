"""Runs a rule on a network with gradients from any function: for theory, tests and teaching."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gossamer.algorithms import Algorithm, parse_algorithm
from gossamer.algorithms import algorithm as make_algorithm
from gossamer.engine.simulation import Simulation
from gossamer.errors import StabilityWarning, UserError
from gossamer.network import Network
from gossamer.network import network as make_network
from gossamer.shapes import Float, Tensor
from gossamer.state.local import LocalOptimizer, Schedule

GradientFunction = Callable[[Tensor, int], Any]


@dataclass(frozen=True)
class FunctionSource:
    """Gradients and losses from plain functions of (x [N, d], t)."""

    gradient_function: GradientFunction
    loss_function: GradientFunction | None

    @property
    def offers(self) -> frozenset[str]:
        """Gradients always; the loss only if a loss function is given."""
        names = {"gradient", "fresh_gradient"}
        return frozenset(names | {"loss"} if self.loss_function else names)

    def gradient(self, x: Float[Tensor, "n d"], step: int) -> tuple[Float[Tensor, "n d"], None]:
        """Return the function's value as a tensor like x."""
        # A copy: the function may return the same buffer at every step.
        g = torch.as_tensor(self.gradient_function(x, step)).to(x, copy=True)
        if g.shape != x.shape:
            raise UserError(f"gradient must return one row per agent, shape {tuple(x.shape)}, got {tuple(g.shape)}")
        return g, None

    def loss(self, x: Float[Tensor, "n d"], step: int) -> Float[Tensor, " n"]:
        """Return the loss function's value as a tensor like x."""
        assert self.loss_function is not None
        return torch.as_tensor(self.loss_function(x, step)).to(x)

    def gradient_elsewhere(self, x: Float[Tensor, "n d"], step: int) -> Float[Tensor, "n d"]:
        """Call the gradient function at another point."""
        return self.gradient(x, step)[0]

    def fresh_gradient(self, x: Float[Tensor, "n d"], step: int) -> Float[Tensor, "n d"]:
        """Call the gradient function again: a stochastic one draws a new sample."""
        return self.gradient(x, step)[0]


def trajectory(
    algorithm: str | Algorithm,
    network: str | Network,
    gradient: GradientFunction,
    x0: Any,
    lr: float = 0.1,
    steps: int = 200,
    *,
    loss: GradientFunction | None = None,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    schedule: str = "constant",
    segments: tuple[int, ...] | None = None,
    seed: int = 0,
) -> Float[Tensor, "steps_and_start n d"]:
    """Run a rule and return every state, [steps + 1, N, d]; float64 in, float64 out.

    Args:
        algorithm: an object from `gm.algorithm`, or a text such as "pc-asgd/theta=pv".
        network: an object from `gm.network`, or a text such as "ring:8" (no delay).
        gradient: a function of (x [N, d], t) that returns [N, d].
        x0: the initial state, [N, d], or [d] for a start that all agents share.
        lr: the learning rate eta.
        steps: the number of iterations.
        loss: a function of (x [N, d], t) that returns [N], for criterion='loss'.
        momentum: momentum of the local SGD.
        nesterov: use Nesterov momentum.
        weight_decay: weight decay of the local SGD; not part of the curvature estimate.
        schedule: 'constant', 'cosine' or 'step:0.5,0.75'.
        segments: lengths of the parameter tensors inside a row, for granularity='tensor'.
        seed: the random seed of the delays and of random theta.
    """
    if steps < 1:
        raise UserError(f"steps must be 1 or more, got {steps}")
    algorithm = to_algorithm(algorithm)
    if isinstance(network, str):
        network = make_network(network)
    start = common_start(x0, network, segments)
    if warning := algorithm.check(network, momentum=momentum):
        warnings.warn(warning, StabilityWarning, stacklevel=2)
    simulation = Simulation(
        algorithm,
        network,
        FunctionSource(gradient, loss),
        start,
        lr=Schedule(lr, schedule, steps).at,
        local=LocalOptimizer(momentum=momentum, nesterov=nesterov, weight_decay=weight_decay),
        segments=segments,
        seed=seed,
    )
    path = [simulation.x]
    for _ in range(steps):
        simulation.step()
        path.append(simulation.x)
    return torch.stack(path)


def to_algorithm(algorithm: str | Algorithm) -> Algorithm:
    """Return a rule from its text, with options as in "pc-asgd/theta=pv", or as it is."""
    if not isinstance(algorithm, str):
        return algorithm
    name, options = parse_algorithm(algorithm)
    return make_algorithm(name, **options)


def common_start(x0: Any, network: Network, segments: tuple[int, ...] | None) -> Float[Tensor, "n d"]:
    """Return the initial states as floating-point rows, one for each agent; refuse another shape."""
    start = x0 if isinstance(x0, torch.Tensor) else torch.from_numpy(np.asarray(x0))
    if not start.is_floating_point():
        start = start.to(torch.float64)
    if start.ndim == 1:
        start = start.expand(network.num_agents, -1)
    if start.ndim != 2 or len(start) != network.num_agents:
        raise UserError(
            f"x0 must be [{network.num_agents}, d] for a network of {network.num_agents} agents, "
            f"or [d] for a common start; got shape {tuple(start.shape)}"
        )
    if segments is not None and sum(segments) != start.shape[1]:
        raise UserError(f"segments {segments} add up to {sum(segments)}, but a row has {start.shape[1]} numbers")
    return start
