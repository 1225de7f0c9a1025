"""Mini-batches of all agents at a step, as a function of (seed, step) alone."""

import torch

from gossamer.seeding import generator
from gossamer.shapes import Int, Tensor


class Batches:
    """Each agent walks through its shard in a new random order every pass; batches run on across passes."""

    def __init__(self, shards: list[Tensor], batch: int, seed: int, purpose: str = "batches") -> None:
        self.shards, self.batch, self.seed, self.purpose = shards, batch, seed, purpose
        self._orders: dict[int, tuple[int, Tensor]] = {}  # agent -> (pass, its order), the latest one only

    def at(self, step: int) -> Int[Tensor, "n b"]:
        """Return the indices of every agent's batch at this step."""
        return torch.stack([self._of_agent(agent, step) for agent in range(len(self.shards))])

    def _of_agent(self, agent: int, step: int) -> Int[Tensor, " b"]:
        size = len(self.shards[agent])
        pieces, position, end = [], step * self.batch, (step + 1) * self.batch
        while position < end:
            number, offset = divmod(position, size)
            piece = self._order(agent, number)[offset : offset + end - position]
            pieces.append(piece)
            position += len(piece)
        return torch.cat(pieces)

    def _order(self, agent: int, number: int) -> Tensor:
        held, order = self._orders.get(agent, (-1, self.shards[agent]))
        if held != number:
            draws = generator(self.seed, self.purpose, agent, number)
            order = self.shards[agent][torch.randperm(len(self.shards[agent]), generator=draws)]
            self._orders[agent] = (number, order)
        return order
