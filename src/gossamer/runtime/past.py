"""An agent's own past, by iteration and by time."""

import bisect
from collections import deque
from collections.abc import Iterable, Mapping

from gossamer.algorithms import Algorithm, Past
from gossamer.algorithms.message_parts import aliases, parts_sent
from gossamer.shapes import Float, Tensor
from gossamer.state.history import Drift, Ring


class StepClock:
    """The times of this agent's last snapshots, to tell a neighbour's age in own iterations."""

    def __init__(self, depth: int) -> None:
        self._depth = depth  # iterations that are kept elsewhere; one time more tells what is older than all of them
        self._steps: deque[tuple[int, int]] = deque(maxlen=depth + 1)  # (time, iteration), rising

    def clear(self) -> None:
        """Forget all."""
        self._steps.clear()

    def add(self, step: int, time: int) -> None:
        """Note that the snapshot of an iteration was taken at this time."""
        self._steps.append((time, step))

    def age(self, time: int) -> int | None:
        """Return the iterations completed since a time; None beyond the past that is kept.

        A snapshot of a neighbour that was taken since our last but one own is current, age 0: its time lies in the
        iteration that this agent has just finished. For an agent that has only begun, nothing is older than its start.
        """
        if not self._steps:
            return 0
        newest = self._steps[-1][1]
        place = bisect.bisect_left(self._steps, (time, -1))
        age = 0 if place == len(self._steps) else newest - self._steps[place][1]
        return age if age < self._depth else None


class OwnPast:
    """The past that a rule needs: own messages by age, and sums over the states since then."""

    def __init__(self, algorithm: Algorithm, x: Float[Tensor, "1 d"], depth: int, *, plain: bool) -> None:
        self._alias = aliases(plain=plain)
        self._names = algorithm.message
        self._rings: dict[str, Ring] = {}
        self._drift: Drift | None = None
        self._first: int | None = None
        if algorithm.past is Past.NONE:
            return
        kept = dict.fromkeys(("x", *parts_sent(algorithm.message, plain=plain)))
        self._rings = {name: Ring(depth, x[:, :1] if name in algorithm.numbers else x) for name in kept}
        for name in algorithm.totals & set(kept):
            self._rings[name] = Ring(depth, x.double())
        if algorithm.past is Past.WINDOW:
            self._drift = Drift(self._rings["x"])

    def clear(self) -> None:
        """Forget all."""
        self._first = None
        for ring in self._rings.values():
            ring.load_state_dict({})
        if self._drift is not None:
            self._drift = Drift(self._rings["x"])

    def push(self, step: int, vectors: Mapping[str, Float[Tensor, "1 _"]]) -> None:
        """Keep what is sent at this iteration."""
        self._first = step if self._first is None else self._first
        for name, ring in self._rings.items():
            ring.push(step, vectors[name])

    def previous(self, step: int) -> Float[Tensor, "1 d"] | None:
        """Return the state of the iteration before; at the first, its own."""
        if not self._rings:
            return None
        assert self._first is not None
        return self._rings["x"].at(max(step - 1, self._first))

    def message(self, step: int) -> dict[str, Float[Tensor, "1 _"]]:
        """Return what was sent at an iteration that is still kept."""
        if not self._rings:
            return {}
        assert self._first is not None
        at = max(step, self._first)
        return {name: self._rings[self._alias.get(name, name)].at(at) for name in (*self._names, "x")}

    def drifts(self, step: int, ages: Iterable[int]) -> Mapping[int, Float[Tensor, "1 d"]]:
        """Return the sum over r < age of x(step - age + r) - x(step - age), for each age."""
        return {} if self._drift is None else self._drift.at(step, ages)
