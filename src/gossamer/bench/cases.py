"""The registry of benchmark cases, and the request that a case runs with."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from gossamer.bench.measure import Race
from gossamer.errors import UserError, unknown_name
from gossamer.run.machine import check_device, free_memory

PRECISIONS = ("float32", "tf32", "bf16")
QUICK_STEPS = 2


@dataclass(frozen=True)
class Request:
    """One call of `gossamer bench`."""

    device: str
    precision: str
    steps: int | None = None  # iterations per timed block; None means each case's own number
    quick: bool = False
    say: Callable[[str], None] = field(default=lambda text: None, compare=False)

    @property
    def cuda(self) -> bool:
        """Whether the device is an NVIDIA or AMD GPU."""
        return torch.device(self.device).type == "cuda"

    @property
    def threads(self) -> int:
        """The CPU threads of every contestant: torch's default."""
        return torch.get_num_threads()

    def count(self, default: int) -> int:
        """Return the iterations per block: the given number, or the default."""
        return self.steps or (min(default, QUICK_STEPS) if self.quick else default)

    def race(self, rounds: int) -> Race:
        """Return a race with this many blocks per contestant."""
        return Race(self.device, 2 if self.quick else rounds, self.say)

    def saying(self, say: Callable[[str], None]) -> "Request":
        """Return the same request, with a function that receives its progress."""
        return dataclasses.replace(self, say=say)

    def command(self, case: str) -> str:
        """Return the command that repeats a case."""
        steps = "" if self.steps is None else f" --steps {self.steps}"
        quick = " --quick" if self.quick else ""
        return f"gossamer bench --cases {case} --device {self.device} --precision {self.precision}{steps}{quick}"


def make_request(device: str | None, precision: str | None, steps: int | None, *, quick: bool) -> Request:
    """Fill in the defaults and refuse invalid values."""
    device = check_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if torch.device(device).type not in ("cpu", "cuda"):
        raise UserError(f"device '{device}' cannot be measured; use cpu or cuda")
    precision = precision or ("bf16" if torch.device(device).type == "cuda" else "float32")
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    if steps is not None and steps < 1:
        raise UserError(f"steps must be 1 or more, got {steps}; leave it out for each case's own number")
    return Request(device, precision, steps, quick)


BenchRow = dict[str, Any]


@dataclass
class Measured:
    """The result of a case: rows, and facts about all rows; `about` describes the run."""

    about: str
    rows: list[BenchRow] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    interrupted: bool = False


@dataclass(frozen=True)
class Case:
    """One benchmark. By default it runs on the devices `usual_on`; it can run on every device, or just `only_on`."""

    name: str
    title: str
    run: Callable[[Request], Measured]
    usual_on: tuple[str, ...]
    only_on: str | None


CASES: dict[str, Case] = {}


def case(
    name: str, title: str, *, usual_on: tuple[str, ...] = ("cuda", "cpu"), only_on: str | None = None
) -> Callable[[Callable[[Request], Measured]], Callable[[Request], Measured]]:
    """Register a function as a case."""

    def add(run: Callable[[Request], Measured]) -> Callable[[Request], Measured]:
        CASES[name] = Case(name, title, run, usual_on, only_on)
        return run

    return add


def run_case(one: Case, request: Request) -> Measured:
    """Run a case, then free the memory of the device."""
    try:
        return one.run(request)
    finally:
        free_memory(request.device)


def choose_cases(text: str | None, request: Request) -> list[Case]:
    """Return the cases of a comma-separated list, or the usual cases of the device."""
    kind = "cuda" if request.cuda else "cpu"
    if text is None:
        return [one for one in CASES.values() if kind in one.usual_on]
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UserError(f"there is no case to measure; use some of: {', '.join(CASES)}")
    for name in names:
        if name not in CASES:
            raise unknown_name("case", name, CASES)
        if CASES[name].only_on == "cuda" and not request.cuda:
            raise UserError(f"case '{name}' needs a CUDA device, got {request.device}; leave it out")
        if CASES[name].only_on == "cpu" and request.cuda:
            raise UserError(f"case '{name}' runs only on the CPU, got {request.device}; add --device cpu")
    return [CASES[name] for name in names]
