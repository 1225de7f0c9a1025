"""Timers: contestants take turns in blocks of iterations, so that a machine that slows down does so for all."""

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one iteration: the median over blocks, the fastest and the slowest block."""

    ms: float
    low: float
    high: float
    blocks: int

    @classmethod
    def of(cls, blocks: Sequence[float]) -> "Timing":
        """Sum up the blocks of a contestant."""
        return cls(statistics.median(blocks), min(blocks), max(blocks), len(blocks))


@dataclass(frozen=True)
class Contestant:
    """One way to take an iteration; `around` sets the arithmetic in which it runs."""

    label: str
    step: Callable[[], object]
    warm_up: int  # iterations before the first timed one: compilers, recordings, first late messages
    steps: int  # iterations in a timed block
    around: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    may_fail: bool = False  # a rival that cannot run is noted; the engine's own failures are failures


class Race:
    """Times contestants. After Ctrl+C `interrupted` is set and `timings` holds what was measured until then."""

    def __init__(self, device: str, rounds: int, on_block: Callable[[str], None]) -> None:
        self.device, self.rounds, self._on_block = device, rounds, on_block
        self.interrupted = False
        self.notes: dict[str, str] = {}  # by label, why a contestant has no timing
        self._blocks: dict[str, list[float]] = {}

    @property
    def timings(self) -> dict[str, Timing]:
        """The timings so far, by label."""
        return {label: Timing.of(blocks) for label, blocks in self._blocks.items() if blocks}

    def run(self, contestants: Sequence[Contestant]) -> dict[str, Timing]:
        """Warm all up, then let them take turns; every round begins with another one."""
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
        """Run a contestant untimed, and say whether it can run: a rival may need more memory than there is."""
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
    """Return the milliseconds of one of `count` iterations; a GPU is waited for at both ends."""
    synchronise(device)
    before = time.perf_counter()
    for _ in range(count):
        step()
    synchronise(device)
    return 1000 * (time.perf_counter() - before) / max(1, count)


def synchronise(device: str) -> None:
    """Wait until the device has done what it was told."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def free_memory(device: str) -> None:
    """Give back what nothing refers to any more, cycles included."""
    gc.collect()
    if torch.device(device).type == "cuda":
        torch.cuda.empty_cache()


def copy_rate(device: str, size: int) -> float:
    """Return the bytes a second that a large copy inside the device's memory moves, reads and writes both counted."""
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    blocks = [timed(lambda: target.copy_(source), 10, device) for _ in range(6)]
    return 2 * size / (statistics.median(blocks[1:]) / 1000)  # the first one warms up
