"""Ring buffers of sent messages, as deep as the largest delay, and sums over a window of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping

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

    def repeats(self, step: int) -> bool:
        """Say whether the value of a step is the tensor of the step before, which takes no memory of its own."""
        return self._slots[step % self.depth] is self._slots[(step - 1) % self.depth]

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


def _as_it_is(rows: Tensor) -> Tensor:
    return rows


class Drift(ABC):
    """sum_{r < age} (x(t - age + r) - x(t - age)) for every requested age.

    `defer` makes the stand-ins of rows whose arithmetic is done later (fused/); without it everything is done at once.
    """

    def __init__(self, ring: Ring, defer: Callable[[Tensor], Tensor] = _as_it_is) -> None:
        self.ring, self._defer = ring, defer

    def _x(self, step: int) -> Float[Tensor, "n d"]:
        return self._defer(self.ring.at(step))

    @abstractmethod
    def at(self, step: int, ages: Iterable[int]) -> Mapping[int, Float[Tensor, "n d"]]:
        """Return the drift of each age at this step. The ring must hold this step already."""

    @abstractmethod
    def kept(self) -> list[Tensor]:
        """Return the sums that later steps need."""

    @abstractmethod
    def settle(self, real: Callable[[Tensor], Tensor]) -> None:
        """Replace stand-ins by their values."""

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """Return the sums, so that a resumed run rounds exactly like an uninterrupted one."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""


class SlidingDrift(Drift):
    """The drift of few ages, which stay: O(d) per age and step.

    The sum is updated with differences only,

        drift(t + 1) = drift(t) + (x(t) - x(t - age)) - age (x(t + 1 - age) - x(t - age)),

    so that the rounding error is relative to the drift, not to the states. It is rebuilt from the ring every REBUILD
    steps, so that rounding errors cannot accumulate.
    """

    REBUILD = 256
    BLOCK = 2**16  # numbers that are summed at once
    KEPT = 4  # most sums to keep; each takes one [N, d]

    def __init__(self, ring: Ring, defer: Callable[[Tensor], Tensor] = _as_it_is) -> None:
        super().__init__(ring, defer)
        self._drifts: dict[int, Tensor] = {}  # by age, for step self._step
        self._step = 0
        self._slides = 0

    def at(self, step: int, ages: Iterable[int]) -> Mapping[int, Float[Tensor, "n d"]]:
        wanted = sorted(set(ages))
        known = self._drifts if step == self._step and self._slides < self.REBUILD else {}
        self._slides = self._slides + 1 if known else 0
        drifts = {age: known[age] for age in wanted if age in known}
        drifts |= self._walk(step, [age for age in wanted if age not in known])
        drifts = {age: self._defer(drift) for age, drift in drifts.items()}
        self._slide(step, drifts if len(wanted) <= self.KEPT else {})
        return drifts

    def _slide(self, step: int, drifts: dict[int, Tensor]) -> None:
        """Advance the sums to the next step now, while the ring still holds the states that they drop."""
        self._drifts = {}
        for age, drift in drifts.items():
            oldest = self._x(step - age)
            moved = drift + (self._x(step) - oldest)
            self._drifts[age] = moved.sub_(self._x(step + 1 - age) - oldest, alpha=age)
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

    def kept(self) -> list[Tensor]:
        return list(self._drifts.values())

    def settle(self, real: Callable[[Tensor], Tensor]) -> None:
        self._drifts = {age: real(drift) for age, drift in self._drifts.items()}

    def state_dict(self) -> dict[str, Tensor]:
        state = {f"sum.{age}": drift for age, drift in self._drifts.items()}
        return {**state, "position": torch.tensor([self._step, self._slides])}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._step, self._slides = (int(value) for value in state["position"])
        like = self.ring.like
        self._drifts = {
            int(name.removeprefix("sum.")): drift.to(like) for name, drift in state.items() if name.startswith("sum.")
        }


class PrefixDrift(Drift):
    """The drift of any ages, O(d) per age in use, from prefix sums P(s) = sum_{u < s} (x(u) - c).

        drift = P(t) - P(s) - age (x(s) - c),    s = t - age

    So that the sums stay small beside the drift, they begin again every `depth` steps, with c = the state of that step,
    B. For a message from before B the sum runs over two spans, with the former c and the sum of its whole span.
    """

    def __init__(self, ring: Ring, defer: Callable[[Tensor], Tensor] = _as_it_is) -> None:
        super().__init__(ring, defer)
        self._sums: dict[int, Tensor] = {}  # by step
        self._begin = 0  # B
        self._reference: dict[str, Tensor] = {}  # "now": c; "before": the former c; "whole": the sum of its span

    def at(self, step: int, ages: Iterable[int]) -> Mapping[int, Float[Tensor, "n d"]]:
        self._advance(step)
        now = {name: self._defer(rows) for name, rows in self._reference.items()}
        newest, begin = self._defer(self._sums[step]), self._begin
        older = newest if "whole" not in now else (newest + now["whole"]).add_(now["now"], alpha=step - begin)
        drifts = {}
        for age in set(ages):
            sent = step - age
            sums = newest if sent >= begin or "whole" not in now else older
            drift = sums - self._defer(self._sums[sent]) if sent in self._sums else sums.clone()
            if sent > 0:
                drift.add_(self._x(sent), alpha=-age)
                drift.add_(now["now" if sums is newest else "before"], alpha=age if sums is newest else begin - sent)
            drifts[age] = drift
        return drifts

    def _advance(self, step: int) -> None:
        """Add the state of the previous step."""
        if not self._reference:
            self._reference = {"now": self.ring.at(step).clone()}
            self._begin, self._sums = step, {step: torch.zeros_like(self.ring.like)}
            return
        newest = self._defer(self._sums[step - 1]) + self._x(step - 1) - self._defer(self._reference["now"])
        if step - self._begin >= self.ring.depth:
            self._reference = {"now": self.ring.at(step).clone(), "before": self._reference["now"], "whole": newest}
            self._begin, newest = step, torch.zeros_like(self.ring.like)
        self._sums[step] = newest
        self._sums = {sent: sums for sent, sums in self._sums.items() if sent > step - self.ring.depth}

    def kept(self) -> list[Tensor]:
        return [*self._sums.values(), *self._reference.values()]

    def settle(self, real: Callable[[Tensor], Tensor]) -> None:
        self._sums = {sent: real(sums) for sent, sums in self._sums.items()}
        self._reference = {name: real(rows) for name, rows in self._reference.items()}

    def state_dict(self) -> dict[str, Tensor]:
        state = {f"prefix.{sent}": sums for sent, sums in self._sums.items()}
        state |= {f"reference.{name}": rows for name, rows in self._reference.items()}
        return {**state, "begin": torch.tensor(self._begin)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        like = self.ring.like
        if "begin" not in state:  # a checkpoint of the time of sliding sums only
            self._rebuild(int(state["position"][0]))
            return
        self._begin = int(state["begin"])
        named = {
            kind: {name.removeprefix(kind): rows.to(like) for name, rows in state.items() if name.startswith(kind)}
            for kind in ("prefix.", "reference.")
        }
        self._sums = {int(sent): sums for sent, sums in named["prefix."].items()}
        self._reference = named["reference."]

    def _rebuild(self, step: int) -> None:
        """Make the sums from the states that are held, as of before this step."""
        if step == 0:
            return
        self._begin = max(0, step - self.ring.depth)
        self._reference = {"now": self.ring.at(self._begin).clone()}
        self._sums = {self._begin: torch.zeros_like(self.ring.like)}
        for sent in range(self._begin + 1, step):
            self._sums[sent] = self._sums[sent - 1] + (self.ring.at(sent - 1) - self._reference["now"])
