"""Gradients of some agents on their mini-batches, each at an iteration of its own."""

from collections.abc import Sequence

from gossamer.data.device_batches import DeviceBatches, Draw
from gossamer.engine.execution import Execution
from gossamer.engine.execution.base import Setup
from gossamer.engine.execution.some_agents import SomeAgents
from gossamer.engine.gradients import TaskSource
from gossamer.seeding import drawing_from
from gossamer.shapes import Float, Tensor


class TimedTaskSource:
    """The agents' losses and gradients on their own mini-batches (a `TimedSource`).

    All agents at the same iteration are the case of the simulator in steps, which gives the same numbers.
    """

    offers = frozenset({"gradient", "loss", "fresh_gradient"})

    def __init__(
        self, setup: Setup, execution: Execution, batches: DeviceBatches, fresh_batches: DeviceBatches, seed: int
    ) -> None:
        self._in_step = TaskSource(execution, batches, fresh_batches, seed)
        self._some = SomeAgents(setup, execution)
        self._batches, self._fresh_batches, self._seed = batches, fresh_batches, seed
        self._count = setup.num_agents

    def gradient(
        self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int]
    ) -> tuple[Float[Tensor, "a d"], Float[Tensor, " a"]]:
        """Return each agent's gradient and loss. This updates the running statistics."""
        if self._moves_in_step(agents, iterations):
            return self._in_step.gradient(x, iterations[0])
        return self._evaluate(x, agents, iterations, self._batches)

    def gradient_elsewhere(
        self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int]
    ) -> Float[Tensor, "a d"]:
        """Return the gradients on the same batches at another point."""
        if self._moves_in_step(agents, iterations):
            return self._in_step.gradient_elsewhere(x, iterations[0])
        return self._evaluate_apart(x, agents, iterations, self._batches)[0]

    def loss(self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int]) -> Float[Tensor, " a"]:
        """Return the losses on the same batches."""
        if self._moves_in_step(agents, iterations):
            return self._in_step.loss(x, iterations[0])
        return self._evaluate_apart(x, agents, iterations, self._batches)[1]

    def fresh_gradient(
        self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int]
    ) -> Float[Tensor, "a d"]:
        """Return the gradients on second batches."""
        if self._moves_in_step(agents, iterations):
            return self._in_step.fresh_gradient(x, iterations[0])
        return self._evaluate_apart(x, agents, iterations, self._fresh_batches)[0]

    def _moves_in_step(self, agents: Sequence[int], iterations: Sequence[int]) -> bool:
        return len(agents) == self._count and iterations.count(iterations[0]) == len(iterations)

    def _evaluate(
        self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int], batches: DeviceBatches
    ) -> tuple[Tensor, Tensor]:
        draw: Draw = batches.draw_apart(agents, iterations)
        with drawing_from(x.device, self._seed, "dropout-apart", agents[0], iterations[0]):
            return self._some.gradient(x, agents, *batches.load(draw))

    def _evaluate_apart(
        self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int], batches: DeviceBatches
    ) -> tuple[Tensor, Tensor]:
        """Evaluate without side effects: restore the running statistics."""
        buffers = list(self._some.everyone.buffers.values())
        before = [buffer.clone() for buffer in buffers]
        result = self._evaluate(x, agents, iterations, batches)
        for buffer, value in zip(buffers, before, strict=True):
            buffer.copy_(value)
        return result
