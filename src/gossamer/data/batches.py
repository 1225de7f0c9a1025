"""Mini-batches of all agents at a step, as a function of (seed, step) alone."""

import torch

from gossamer.seeding import generator
from gossamer.shapes import Int, Tensor

BLOCK = 64  # steps whose draws are made at once: an agent then costs a few calls in 64 steps, not in every one


class Batches:
    """Each agent walks through its shard in a new random order every pass; batches run on across passes."""

    def __init__(self, shards: list[Tensor], batch: int, seed: int, purpose: str = "batches") -> None:
        self.shards, self.batch, self.seed, self.purpose = shards, batch, seed, purpose
        self._orders: dict[int, tuple[int, Tensor]] = {}  # agent -> (pass, order of its shard), the latest one only
        self._held: tuple[int, Tensor] | None = None  # the latest block only

    def at(self, step: int) -> Int[Tensor, "n b"]:
        """Return the indices of every agent's batch at this step."""
        return self.block(step // BLOCK)[step % BLOCK]

    def block(self, index: int) -> Int[Tensor, "64 n b"]:
        """Return the batches of the 64 steps from 64 * index on."""
        if self._held is None or self._held[0] != index:
            walks = [self._of_agent(agent, index) for agent in range(len(self.shards))]
            self._held = index, torch.stack(walks, dim=1)
        return self._held[1]

    def _of_agent(self, agent: int, index: int) -> Int[Tensor, "64 b"]:
        size, length = len(self.shards[agent]), BLOCK * self.batch
        pieces, position, end = [], index * length, (index + 1) * length
        while position < end:
            number, offset = divmod(position, size)
            piece = self._order(agent, number)[offset : offset + end - position]
            pieces.append(piece)
            position += len(piece)
        return self.shards[agent][torch.cat(pieces)].view(BLOCK, self.batch)

    def _order(self, agent: int, number: int) -> Tensor:
        held = self._orders.get(agent)
        if held is None or held[0] != number:
            draws = generator(self.seed, self.purpose, agent, number)
            held = self._orders[agent] = number, torch.randperm(len(self.shards[agent]), generator=draws)
        return held[1]
