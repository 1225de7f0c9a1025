"""The past, only as deep as the largest delay: ring buffers of what was sent, and sums over a window of it."""

from collections.abc import Iterable, Mapping

import torch

from gossamer.shapes import Float, Tensor


class Ring:
    """The last `depth` values of one [N, d] tensor, by step."""

    def __init__(self, depth: int, like: Float[Tensor, "n d"]) -> None:
        self.depth = depth
        self.buffer = like.new_zeros((depth, *like.shape))

    def push(self, step: int, value: Float[Tensor, "n d"]) -> None:
        """Store the value of this step over the one that is `depth` steps older."""
        self.buffer[step % self.depth].copy_(value)

    def at(self, step: int) -> Float[Tensor, "n d"]:
        """Return the value of a step that is still held; steps before the first mean the first."""
        return self.buffer[max(step, 0) % self.depth]


class Drift:
    """sum_{r < age} (x(t - age + r) - x(t - age)) for every age asked for, in O(d) an age and step.

    The window sum slides: one state enters, one leaves. It is kept in float64 and rebuilt from the ring every
    REBUILD slides, so that rounding cannot accumulate. When many ages are in use at once (random delays), one
    walk back through the ring serves them all and nothing is kept.
    """

    REBUILD = 256
    KEPT = 4  # at most this many sliding windows; each costs one float64 [N, d]

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._sums: dict[int, Tensor] = {}  # age -> sum over [t - age, t), for t = self._step
        self._step = 0
        self._slides = 0

    def at(self, step: int, ages: Iterable[int]) -> Mapping[int, Float[Tensor, "n d"]]:
        """Return the drift of each age at this step, in the ring's dtype; the ring holds this step already."""
        wanted = sorted(set(ages))
        known = self._sums if step == self._step and self._slides < self.REBUILD else {}
        self._slides = self._slides + 1 if known else 0
        sums = {age: known[age] for age in wanted if age in known}
        sums |= self._walk(step, [age for age in wanted if age not in known])
        self._slide(step, sums if len(wanted) <= self.KEPT else {})
        return {age: (sums[age] - age * self.ring.at(step - age).double()).to(self.ring.buffer.dtype) for age in wanted}

    def _slide(self, step: int, sums: dict[int, Tensor]) -> None:
        """Move the windows on to the next step now, while the ring still holds the states that leave them."""
        newest = self.ring.at(step).double()
        self._sums = {age: total + (newest - self.ring.at(step - age)) for age, total in sums.items()}
        self._step = step + 1

    def _walk(self, step: int, ages: list[int]) -> dict[int, Tensor]:
        """Sum from the newest state backwards, keeping the sums at the ages asked for."""
        sums: dict[int, Tensor] = {}
        total = torch.zeros_like(self.ring.buffer[0], dtype=torch.float64)
        for age in range(1, max(ages, default=0) + 1):
            total = total + self.ring.at(step - age)
            if age in ages:
                sums[age] = total
        return sums

    def state_dict(self) -> dict[str, Tensor]:
        """Return the sliding sums, so that a resumed run rounds exactly as an uninterrupted one."""
        state = {f"sum.{age}": total for age, total in self._sums.items()}
        return {**state, "position": torch.tensor([self._step, self._slides])}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        self._step, self._slides = (int(value) for value in state["position"])
        self._sums = {
            int(name.removeprefix("sum.")): total.to(self.ring.buffer.device)
            for name, total in state.items()
            if name.startswith("sum.")
        }
