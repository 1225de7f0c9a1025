"""The list of benchmark cases, and the request that they are run with.

A case returns its rows, and facts that belong to all of them.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from gossamer.bench.measure import Race, free_memory
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


def make_request(device: str | None, precision: str | None, steps: int | None, *, quick: bool) -> Request:
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


BenchRow = dict[str, Any]


@dataclass
class Measured:
    """What a case found; `about` says in words what was run."""

    about: str
    rows: list[BenchRow] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    interrupted: bool = False


@dataclass(frozen=True)
class Case:
    """One benchmark. `usual_on` are the devices on which it runs without being asked for."""

    name: str
    title: str
    run: Callable[[Request], Measured]
    usual_on: tuple[str, ...] = ("cuda", "cpu")
    needs_cuda: bool = False
    needs_cpu: bool = False


CASES: dict[str, Case] = {}


def case(
    name: str,
    title: str,
    *,
    usual_on: tuple[str, ...] = ("cuda", "cpu"),
    needs_cuda: bool = False,
    needs_cpu: bool = False,
) -> Callable[[Callable[[Request], Measured]], Callable[[Request], Measured]]:
    """Put a function on the list of cases."""

    def add(run: Callable[[Request], Measured]) -> Callable[[Request], Measured]:
        CASES[name] = Case(name, title, run, usual_on, needs_cuda, needs_cpu)
        return run

    return add


def run_case(one: Case, plan: Request) -> Measured:
    """Run a case, and leave the device to the next one as it was."""
    try:
        return one.run(plan)
    finally:
        free_memory(plan.device)


def choose_cases(text: str | None, plan: Request) -> list[Case]:
    """Return the cases that are named with commas between them, or all usual ones of the device."""
    kind = "cuda" if plan.cuda else "cpu"
    if text is None:
        return [one for one in CASES.values() if kind in one.usual_on]
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UserError(f"there is no case to measure; use some of: {', '.join(CASES)}")
    for name in names:
        if name not in CASES:
            raise unknown_name("case", name, CASES)
        if CASES[name].needs_cuda and not plan.cuda:
            raise UserError(f"case '{name}' needs a CUDA device, got {plan.device}; leave it out")
        if CASES[name].needs_cpu and plan.cuda:
            raise UserError(f"case '{name}' is of the CPU, got {plan.device}; add --device cpu")
    return [CASES[name] for name in names]
