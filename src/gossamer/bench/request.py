"""What a benchmark is asked for: device, precision, how long; and what it says on the way."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from gossamer.bench.measure import Race
from gossamer.errors import UserError, unknown_name
from gossamer.run.machine import check_device

PRECISIONS = ("float32", "tf32", "bf16")
QUICK_STEPS = 2


def _silent(text: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Request:
    """One call of `gossamer bench`."""

    device: str
    precision: str
    steps: int | None = None  # iterations in a timed block; None: each case's own number
    quick: bool = False
    say: Callable[[str], None] = field(default=_silent, compare=False)

    @property
    def cuda(self) -> bool:
        """Whether the device is an NVIDIA or AMD GPU."""
        return torch.device(self.device).type == "cuda"

    @property
    def threads(self) -> int:
        """The CPU threads that all contestants get: as many as torch would take by itself."""
        return torch.get_num_threads()

    def count(self, default: int) -> int:
        """Return the iterations in a block: what was asked for, or this many."""
        return self.steps or (min(default, QUICK_STEPS) if self.quick else default)

    def race(self, rounds: int) -> Race:
        """Return a race of so many blocks for each contestant."""
        return Race(self.device, 2 if self.quick else rounds, self.say)

    def saying(self, say: Callable[[str], None]) -> "Request":
        """Return the same plan, telling its progress to somebody."""
        return dataclasses.replace(self, say=say)

    def command(self, case: str) -> str:
        """Return the command that repeats a case."""
        steps = "" if self.steps is None else f" --steps {self.steps}"
        quick = " --quick" if self.quick else ""
        return f"gossamer bench --cases {case} --device {self.device} --precision {self.precision}{steps}{quick}"


def make_plan(device: str | None, precision: str | None, steps: int | None, *, quick: bool) -> Request:
    """Fill in what was left open, and refuse what cannot be."""
    device = check_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if torch.device(device).type not in ("cpu", "cuda"):
        raise UserError(f"device '{device}' cannot be measured; use cpu or cuda")
    precision = precision or ("bf16" if torch.device(device).type == "cuda" else "float32")
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    if steps is not None and steps < 1:
        raise UserError(f"steps must be 1 or more, got {steps}; leave it out for each case's own number")
    return Request(device, precision, steps, quick)
