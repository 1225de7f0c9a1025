"""Values of all agents: rows of one tensor, or a tensor for each agent. Agents that update alone replace their own."""

from collections.abc import Sequence

import torch

from gossamer.shapes import Shaped, Tensor


class Rows:
    """One value with rows for each agent, as a whole or apart; the form changes when the other one is asked for."""

    def __init__(self, whole: Shaped[Tensor, "rows ..."], starts: Sequence[int]) -> None:
        """Rows starts[i] to starts[i + 1] belong to agent i."""
        self._starts = starts
        self._whole: Tensor | None = whole
        self._parts: list[Tensor] = []

    def whole(self) -> Shaped[Tensor, "rows ..."]:
        """Return the rows of all agents."""
        if self._whole is None:
            self._whole = torch.cat(self._parts)
        return self._whole

    def replace(self, whole: Shaped[Tensor, "rows ..."]) -> None:
        """Replace the rows of all agents."""
        self._whole, self._parts = whole, []

    def part(self, agent: int) -> Shaped[Tensor, "own ..."]:
        """Return an agent's rows, which must not be changed."""
        if not self._parts:
            assert self._whole is not None
            return self._whole[self._starts[agent] : self._starts[agent + 1]]
        return self._parts[agent]

    def replace_part(self, agent: int, rows: Shaped[Tensor, "own ..."]) -> None:
        """Replace an agent's rows."""
        if not self._parts:
            assert self._whole is not None
            self._parts = [self.part(each) for each in range(len(self._starts) - 1)]
        self._whole = None
        self._parts[agent] = rows

    def of(self, agents: Sequence[int]) -> Shaped[Tensor, "rows ..."]:
        """Return the rows of some agents, one after the other."""
        if len(agents) == len(self._starts) - 1:
            return self.whole()
        return torch.cat([self.part(agent) for agent in agents])
