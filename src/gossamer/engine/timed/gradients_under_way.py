"""Gradients of iterations under way: whenever one is needed, all that are missing are computed in one call.

A gradient depends only on the state at which its iteration began, so it may be computed before the iteration ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from gossamer.engine.timed.rows import Rows
from gossamer.engine.timed.timetable import State, Timetable
from gossamer.fused import real
from gossamer.shapes import Float, Tensor


@runtime_checkable
class TimedSource(Protocol):
    """Computes gradients of some agents at once, each at its own iteration; a function of these alone."""

    @property
    def offers(self) -> frozenset[str]:
        """The evaluations that it supports: of loss, gradient and fresh_gradient."""

    def gradient(
        self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int]
    ) -> tuple[Float[Tensor, "a d"], Float[Tensor, " a"] | None]:
        """Return the gradient of each agent on its batch of its iteration, and its loss if known."""

    def gradient_elsewhere(
        self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int]
    ) -> Float[Tensor, "a d"]:
        """Return the gradients on the same batches at another point, without side effects."""

    def loss(self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int]) -> Float[Tensor, " a"]:
        """Return the losses on the same batches."""

    def fresh_gradient(
        self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int]
    ) -> Float[Tensor, "a d"]:
        """Return the gradients on other batches."""


@dataclass(frozen=True)
class AtIterations:
    """A source bound to some agents and their iterations: an `algorithms.base.Evaluate`."""

    source: TimedSource
    agents: Sequence[int]
    iterations: Sequence[int]

    def loss(self, x: Float[Tensor, "a d"]) -> Float[Tensor, " a"]:
        """Return each agent's loss at x."""
        return self.source.loss(real(x), self.agents, self.iterations)

    def gradient(self, x: Float[Tensor, "a d"]) -> Float[Tensor, "a d"]:
        """Return each agent's gradient at x."""
        return self.source.gradient_elsewhere(real(x), self.agents, self.iterations)

    def fresh_gradient(self, x: Float[Tensor, "a d"]) -> Float[Tensor, "a d"]:
        """Return each agent's gradient at x on another batch."""
        return self.source.fresh_gradient(real(x), self.agents, self.iterations)


class GradientsUnderWay:
    """The gradients that are computed, until their iterations end."""

    def __init__(self, source: TimedSource, x: Rows, table: Timetable) -> None:
        self._source, self._x, self._table = source, x, table
        self._everyone = range(len(table.iteration))
        self._apart: dict[int, tuple[int, Tensor, float | None]] = {}  # agent -> iteration, gradient, loss
        self._together: tuple[Tensor, Tensor | None] | None = None  # of all agents, at the same iteration
        self._missing = set(self._everyone)  # agents whose iterations have begun since

    def compute(self, agents: Sequence[int], *, together: bool) -> None:
        """Compute what is missing. `together`: all agents end the same iteration now."""
        if self._together is not None and not together:
            self._split()
        if self._together is not None or all(agent in self._apart for agent in agents):
            return
        ended, state = set(agents), self._table.state
        wanted = sorted(agent for agent in self._missing if agent in ended or state[agent] is State.COMPUTING)
        iterations = [self._table.iteration[agent] for agent in wanted]
        self._missing.difference_update(wanted)
        g, loss = self._source.gradient(self._x.of(wanted), wanted, iterations)
        if together and len(wanted) == len(self._everyone):
            self._together = g, loss
            return
        losses: list[float | None] = [None] * len(wanted) if loss is None else loss.tolist()
        for place, (agent, k) in enumerate(zip(wanted, iterations, strict=True)):
            row = g[place : place + 1]
            self._apart[agent] = k, row.clone() if len(g) > 1 else row, losses[place]

    def _split(self) -> None:
        assert self._together is not None
        g, loss = self._together
        for agent in self._everyone:
            known = None if loss is None else float(loss[agent])
            self._apart[agent] = self._table.iteration[agent], g[agent : agent + 1].clone(), known
        self._together = None

    def begin(self, agent: int) -> None:
        """Note that an agent begins an iteration."""
        self._missing.add(agent)

    def take(self, agent: int) -> tuple[int, Float[Tensor, "1 d"], float | None]:
        """Return an agent's iteration, gradient and loss, and forget them."""
        return self._apart.pop(agent)

    def take_all(self) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"] | None]:
        """Return the gradients and losses of all agents, and forget them."""
        if self._together is not None:
            computed, self._together = self._together, None
            return computed
        found = [self._apart.pop(agent) for agent in self._everyone]
        losses = [loss for _, _, loss in found if loss is not None]
        return torch.cat([g for _, g, _ in found]), torch.tensor(losses) if len(losses) == len(found) else None

    def discard(self, agent: int) -> None:
        """Forget the gradient of an iteration that does not end."""
        if self._together is not None:
            self._split()
        self._apart.pop(agent, None)
        self._missing.add(agent)

    def state_dict(self) -> dict[str, Tensor]:
        """Return what is computed: computing it again in other company would round differently."""
        if self._together is not None:
            self._split()
        agents = sorted(self._apart)
        state = {f"g.{agent}": self._apart[agent][1] for agent in agents}
        losses = [torch.nan if (loss := self._apart[agent][2]) is None else loss for agent in agents]
        numbers = torch.tensor([[agent, self._apart[agent][0]] for agent in agents], dtype=torch.int64)
        return {**state, "agents": numbers.reshape(-1, 2), "losses": torch.tensor(losses, dtype=torch.float64)}

    def load_state_dict(self, state: dict[str, Tensor], like: Tensor) -> None:
        """Restore what `state_dict` returned."""
        losses = [None if loss != loss else loss for loss in state["losses"].tolist()]
        self._together = None
        self._apart = {
            agent: (k, state[f"g.{agent}"].to(like), loss)
            for (agent, k), loss in zip(state["agents"].tolist(), losses, strict=True)
        }
        computing = (agent for agent in self._everyone if self._table.state[agent] is not State.WAITING)
        self._missing = {agent for agent in computing if agent not in self._apart}
