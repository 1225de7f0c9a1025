"""Runs a rule on a testbed, in seconds, with gradients from any function: for theory, tests and teaching."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gossamer.algorithms import Algorithm
from gossamer.engine.timed.timed_simulation import TimedSimulation
from gossamer.engine.trajectory import common_start, to_algorithm
from gossamer.errors import StabilityWarning, UserError
from gossamer.network import Network
from gossamer.network import network as make_network
from gossamer.run.testbed_network import network_on
from gossamer.shapes import Float, Int, Tensor
from gossamer.state.local import LocalOptimizer, Schedule
from gossamer.testbed import Testbed

TimedGradient = Callable[[Tensor, Tensor, Tensor], Any]


@dataclass(frozen=True)
class TimedFunctionSource:
    """Gradients and losses from plain functions of (x [a, d], agents [a], iterations [a])."""

    gradient_function: TimedGradient
    loss_function: TimedGradient | None = None

    @property
    def offers(self) -> frozenset[str]:
        """Gradients always; the loss only if a loss function is given."""
        names = {"gradient", "fresh_gradient"}
        return frozenset(names | {"loss"} if self.loss_function else names)

    def gradient(
        self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int]
    ) -> tuple[Float[Tensor, "a d"], None]:
        """Return the function's value as a tensor like x."""
        # A copy: the function may return the same buffer at every call.
        g = torch.as_tensor(self.gradient_function(x, *_numbers(agents, iterations))).to(x, copy=True)
        if g.shape != x.shape:
            raise UserError(f"gradient must return one row per agent, shape {tuple(x.shape)}, got {tuple(g.shape)}")
        return g, None

    def gradient_elsewhere(
        self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int]
    ) -> Float[Tensor, "a d"]:
        """Call the gradient function at another point."""
        return self.gradient(x, agents, iterations)[0]

    def loss(self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int]) -> Float[Tensor, " a"]:
        """Return the loss function's value as a tensor like x."""
        assert self.loss_function is not None
        return torch.as_tensor(self.loss_function(x, *_numbers(agents, iterations))).to(x)

    def fresh_gradient(
        self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int]
    ) -> Float[Tensor, "a d"]:
        """Call the gradient function again: a stochastic one draws a new sample."""
        return self.gradient(x, agents, iterations)[0]


def _numbers(*lists: Sequence[int]) -> tuple[Int[Tensor, " a"], ...]:
    return tuple(torch.tensor(numbers, dtype=torch.int64) for numbers in lists)


@dataclass(frozen=True, eq=False)
class Timeline:
    """A run in seconds.

    Attributes:
        times: when each agent made each of its updates, in seconds.
        paths: the states of each agent, [updates + 1, d], the first one before any update.
        ages: the age of each neighbour's message at each update of each agent, -1 without one.
        network: the network, with the age of messages in steps that the testbed implies as its delay.
    """

    times: list[list[float]]
    paths: list[Float[Tensor, "updates_and_start d"]]
    ages: list[Int[Tensor, "updates neighbours"]]
    network: Network


def timeline(
    algorithm: str | Algorithm,
    network: str | Network,
    gradient: TimedGradient,
    x0: Any,
    lr: float = 0.1,
    *,
    testbed: Testbed,
    seconds: float,
    loss: TimedGradient | None = None,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    segments: tuple[int, ...] | None = None,
    seed: int = 0,
) -> Timeline:
    """Run a rule on a testbed until a simulated time; float64 in, float64 out.

    Args:
        algorithm: an object from `gm.algorithm`, or a text such as "pc-asgd/theta=pv".
        network: an object from `gm.network`, or a text such as "ring:8". The testbed replaces its delay and its loss.
        gradient: a function of (x [a, d], agents [a], iterations [a]) that returns [a, d].
        x0: the initial state, [N, d], or [d] for a start that all agents share.
        lr: the learning rate eta.
        testbed: an object from `gm.testbed`.
        seconds: the simulated time at which the run ends; updates made then count.
        loss: a function like `gradient` that returns [a], for criterion='loss'.
        momentum: momentum of the local SGD.
        nesterov: use Nesterov momentum.
        weight_decay: weight decay of the local SGD; not part of the curvature estimate.
        segments: lengths of the parameter tensors inside a row, for granularity='tensor'.
        seed: the random seed of iteration times, losses and random theta.
    """
    if not 0 < seconds < float("inf"):
        raise UserError(f"seconds must be positive and finite, got {seconds}; use for example 60")
    algorithm = to_algorithm(algorithm)
    network = make_network(network) if isinstance(network, str) else network
    start = common_start(x0, network, segments)
    local = LocalOptimizer(momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    network = network_on(
        testbed, network, algorithm, size=start.shape[1], itemsize=start.element_size(), plain=local.plain
    )
    if warning := algorithm.check(network, momentum=momentum):
        warnings.warn(warning, StabilityWarning, stacklevel=2)
    simulation = TimedSimulation(
        algorithm,
        network,
        testbed,
        TimedFunctionSource(gradient, loss),
        start,
        lr=Schedule(lr).at,
        local=local,
        segments=segments,
        seed=seed,
    )
    times: list[list[float]] = [[] for _ in range(network.num_agents)]
    paths = [[simulation.state_of(agent)] for agent in range(network.num_agents)]
    ages: list[list[list[int]]] = [[] for _ in range(network.num_agents)]
    while (reports := simulation.advance(seconds)) is not None:
        for report in reports:
            for agent, heard in zip(report.agents, report.heard, strict=True):
                times[agent].append(simulation.now)
                paths[agent].append(simulation.state_of(agent))
                ages[agent].append(heard.ages)
    degrees = network.pattern.starts.diff().tolist()
    tables = [
        torch.tensor(rows, dtype=torch.int64).reshape(len(rows), degree)
        for rows, degree in zip(ages, degrees, strict=True)
    ]
    return Timeline(times, [torch.cat(path) for path in paths], tables, network)
