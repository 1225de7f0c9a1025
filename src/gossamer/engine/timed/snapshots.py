"""What agents published, kept as long as a message or an agent's own past refers to it, and only once."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from gossamer.shapes import Float, Tensor

PREFIX = "prefix"  # the sum of an agent's states before this one, in float64


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Parts of messages that were made together: rows of all agents, or of one."""

    parts: Mapping[str, Float[Tensor, "a _"]]

    @property
    def is_whole(self) -> bool:
        """Whether there is a row for each agent."""
        return len(next(iter(self.parts.values()))) > 1


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One agent's row of a block."""

    block: Block
    row: int

    def part(self, name: str) -> Float[Tensor, "1 _"]:
        """Return a part of the message."""
        return self.block.parts[name][self.row : self.row + 1]


class OwnPast:
    """An agent's own snapshots, by iteration, as far back as some message that it holds or may still get."""

    def __init__(self) -> None:
        self._held: deque[tuple[int, int, Snapshot]] = deque()  # (iteration, end, snapshot), rising

    def push(self, iteration: int, end: int, snapshot: Snapshot) -> None:
        """Keep the snapshot of an iteration that ended at this time."""
        self._held.append((iteration, end, snapshot))

    def at(self, iteration: int) -> Snapshot:
        """Return the snapshot of an iteration; of one before all that are kept, the oldest."""
        first = self._held[0][0]
        return self._held[max(0, iteration - first)][2]

    def forget(self, stamp: int | None) -> None:
        """Forget what no message as new as this can refer to, except the newest two."""
        held = self._held
        while len(held) > 2 and (stamp is None or held[0][1] < stamp):
            held.popleft()

    def clear(self) -> None:
        """Forget all: the agent goes on from another state."""
        self._held.clear()

    def items(self) -> list[tuple[int, int, Snapshot]]:
        """Return everything that is kept."""
        return list(self._held)
