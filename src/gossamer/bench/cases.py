"""The list of what is measured. A case returns its rows, and facts that belong to all of them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gossamer.bench.measure import free_memory
from gossamer.bench.request import Request
from gossamer.errors import UserError, unknown_name

Row = dict[str, Any]


@dataclass
class Measured:
    """What a case found; `about` says in words what was run."""

    about: str
    rows: list[Row] = field(default_factory=list)
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
