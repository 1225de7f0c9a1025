"""Timers: contestants take turns in blocks of iterations, so a slow phase of the machine hits all of them."""

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from gossamer.run.machine import free_memory, synchronise


@dataclass(frozen=True)
class Timing:
    """Milliseconds per iteration: median, fastest and slowest block."""

    ms: float
    low: float
    high: float
    blocks: int

    @classmethod
    def of(cls, blocks: Sequence[float]) -> "Timing":
        """Summarise the blocks of a contestant."""
        return cls(statistics.median(blocks), min(blocks), max(blocks), len(blocks))


@dataclass(frozen=True)
class Contestant:
    """One way to compute an iteration; `around` sets its arithmetic."""

    label: str
    step: Callable[[], object]
    warm_up: int  # untimed iterations: compilation, recording, first late messages
    steps: int  # iterations per timed block
    around: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    may_fail: bool = False  # a rival's failure becomes a note; a failure of the engine is an error


class Race:
    """Times contestants. After Ctrl+C `interrupted` is True and `timings` has the results so far."""

    def __init__(self, device: str, rounds: int, on_block: Callable[[str], None]) -> None:
        self.device, self.rounds, self._on_block = device, rounds, on_block
        self.interrupted = False
        self.notes: dict[str, str] = {}  # by label: why a contestant has no timing
        self._blocks: dict[str, list[float]] = {}

    @property
    def timings(self) -> dict[str, Timing]:
        """The timings so far, by label."""
        return {label: Timing.of(blocks) for label, blocks in self._blocks.items() if blocks}

    def run(self, contestants: Sequence[Contestant]) -> dict[str, Timing]:
        """Warm all up, then time them in turns; every round starts with another contestant."""
        try:
            running = [one for one in contestants if self._warm_up(one)]
            for number in range(self.rounds):
                first = number % max(1, len(running))
                for one in running[first:] + running[:first]:
                    self._on_block(f"{one.label}, round {number + 1} of {self.rounds}")
                    with one.around():
                        milliseconds = timed(one.step, one.steps, self.device)
                    self._blocks.setdefault(one.label, []).append(milliseconds)
        except KeyboardInterrupt:
            self.interrupted = True
        return self.timings

    def _warm_up(self, one: Contestant) -> bool:
        """Run a contestant untimed and say whether it works: a rival may need too much memory."""
        self._on_block(f"{one.label}, warming up")
        try:
            with one.around():
                timed(one.step, one.warm_up, self.device)
        except RuntimeError as error:
            if not one.may_fail:
                raise
            memory = isinstance(error, torch.cuda.OutOfMemoryError)
            self.notes[one.label] = "out of memory" if memory else str(error).strip().splitlines()[0][:80]
            free_memory(self.device)
            return False
        return True


def timed(step: Callable[[], object], count: int, device: str) -> float:
    """Return the milliseconds per iteration over `count` iterations, synchronised with the GPU at both ends."""
    synchronise(device)
    before = time.perf_counter()
    for _ in range(count):
        step()
    synchronise(device)
    return 1000 * (time.perf_counter() - before) / max(1, count)


def copy_rate(device: str, size: int) -> float:
    """Return the bytes per second of a large copy on the device; reads and writes both count."""
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    blocks = [timed(lambda: target.copy_(source), 10, device) for _ in range(6)]
    return 2 * size / (statistics.median(blocks[1:]) / 1000)  # the first block warms up
