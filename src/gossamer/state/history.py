"""Ring buffers of sent messages, as deep as the largest delay, and sums over a window of them."""

from collections.abc import Iterable, Mapping

import torch

from gossamer.shapes import Float, Tensor


class Ring:
    """The last `depth` values of one [N, d] tensor, by step.

    `where` says how values are kept: unchanged ('state'), rounded to bfloat16 ('bf16'), or in host memory ('host') and
    copied back to the device when read.
    """

    def __init__(self, depth: int, like: Float[Tensor, "n d"], where: str = "state") -> None:
        self.depth, self.like, self._where = depth, like, where
        self._slots: list[Tensor | None] = [None] * depth
        self._places: dict[int, Tensor] = {}  # by slot: the buffer for copies; lasting values are not copied

    def push(self, step: int, value: Float[Tensor, "n d"], *, lasting: bool = False) -> None:
        """Store the value of this step in place of the one that is `depth` steps older.

        A lasting value is never changed later, so it is kept without a copy. Any other value is copied.
        """
        slot = step % self.depth
        if lasting and self._where == "state":
            self._slots[slot] = value
        else:
            self._slots[slot] = self._place(slot).copy_(value, non_blocking=True)

    def at(self, step: int, columns: slice | None = None) -> Float[Tensor, "n _"]:
        """Return the value of a step that is still held, or some of its columns. Any step before 0 means step 0."""
        held = self._slots[max(step, 0) % self.depth]
        assert held is not None
        return (held if columns is None else held[:, columns]).to(self.like, non_blocking=True)

    def held(self) -> list[Tensor]:
        """Return the values that are held."""
        return [value for value in self._slots if value is not None]

    def _place(self, slot: int) -> Tensor:
        if slot not in self._places:
            on_host = self._where == "host"
            self._places[slot] = torch.empty(
                self.like.shape,
                dtype=torch.bfloat16 if self._where == "bf16" else self.like.dtype,
                device="cpu" if on_host else self.like.device,
                pin_memory=on_host and self.like.is_cuda,
            )
        return self._places[slot]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the held values, by slot."""
        return {str(slot): held for slot, held in enumerate(self._slots) if held is not None}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        if any(int(slot) >= self.depth for slot in state):
            raise ValueError(f"its history is deeper than {self.depth}")
        self._slots = [None] * self.depth
        for slot, value in state.items():
            self._slots[int(slot)] = self._place(int(slot)).copy_(value)  # copy_ refuses another shape
        if self._where == "state":
            self._places = {}  # so that loaded values are freed when they are replaced


class Drift:
    """sum_{r < age} (x(t - age + r) - x(t - age)) for every requested age, in O(d) per age and step.

    The sum is updated with differences only,

        drift(t + 1) = drift(t) + (x(t) - x(t - age)) - age (x(t + 1 - age) - x(t - age)),

    so that the rounding error is relative to the drift, not to the states. It is rebuilt from the ring every REBUILD
    steps, so that rounding errors cannot accumulate. If many ages are in use at once (random delays), one backward
    walk through the ring computes all sums, and none is kept.
    """

    REBUILD = 256
    BLOCK = 2**16  # numbers that are summed at once
    KEPT = 4  # most sums to keep; each takes one [N, d]

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._drifts: dict[int, Tensor] = {}  # by age, for step self._step
        self._step = 0
        self._slides = 0

    def at(self, step: int, ages: Iterable[int]) -> Mapping[int, Float[Tensor, "n d"]]:
        """Return the drift of each age at this step. The ring must hold this step already."""
        wanted = sorted(set(ages))
        known = self._drifts if step == self._step and self._slides < self.REBUILD else {}
        self._slides = self._slides + 1 if known else 0
        drifts = {age: known[age] for age in wanted if age in known}
        drifts |= self._walk(step, [age for age in wanted if age not in known])
        self._slide(step, drifts if len(wanted) <= self.KEPT else {})
        return drifts

    def _slide(self, step: int, drifts: dict[int, Tensor]) -> None:
        """Advance the sums to the next step now, while the ring still holds the states that they drop."""
        self._drifts = {}
        for age, drift in drifts.items():
            oldest = self.ring.at(step - age)
            moved = drift + (self.ring.at(step) - oldest)
            self._drifts[age] = moved.sub_(self.ring.at(step + 1 - age) - oldest, alpha=age)
        self._step = step + 1

    def _walk(self, step: int, ages: list[int]) -> dict[int, Tensor]:
        """Sum differences backwards from the newest state, and keep the sums of the requested ages.

        With one more state, every difference so far grows by the same amount:
        drift(age) = drift(age - 1) + (age - 1) (x(t - age + 1) - x(t - age)).
        """
        drifts = {age: torch.empty_like(self.ring.like) for age in ages}
        if not ages:
            return drifts
        agents, size = self.ring.like.shape
        width = max(1, self.BLOCK // agents)  # so that the sums in float64 need little memory
        for first in range(0, size, width):
            columns = slice(first, first + width)
            newer = self.ring.at(step - 1, columns).double()
            total = torch.zeros_like(newer)
            for age in range(1, max(ages) + 1):
                older = self.ring.at(step - age, columns).double()
                total += (age - 1) * (newer - older)
                newer = older
                if age in drifts:
                    drifts[age][:, columns] = total
        return drifts

    def state_dict(self) -> dict[str, Tensor]:
        """Return the sums, so that a resumed run rounds exactly like an uninterrupted one."""
        state = {f"sum.{age}": drift for age, drift in self._drifts.items()}
        return {**state, "position": torch.tensor([self._step, self._slides])}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        self._step, self._slides = (int(value) for value in state["position"])
        like = self.ring.like
        self._drifts = {
            int(name.removeprefix("sum.")): drift.to(like) for name, drift in state.items() if name.startswith("sum.")
        }
