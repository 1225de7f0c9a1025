"""All runs of some results, in the order that decides most first: one seed of every cell, then the next seed.

Several programs may work on one folder: each takes runs that no other is making, and all end when all runs are there.
A claim on a run is a lock of the operating system: it ends with the program that holds it.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from gossamer.engine.training import OnStep, Stop
from gossamer.paper.cells import Cell, key_of
from gossamer.paper.make_run import Job, Stopped, make_run
from gossamer.paper.rates import Missing, Rates
from gossamer.paper.scales import Scale
from gossamer.paper.store import Record, Store
from gossamer.run.settings import Settings

OnRun = Callable[[str, int, int], OnStep | None]  # of what is run, its steps, and how many runs are there
EPOCHS_PER_LOOK = 3  # at least: an evaluation of all agents takes as long as a third of an epoch
TRIALS = 4  # about so many runs' time goes into the search for one rate
WAIT = 0.5  # seconds between looks at what others are making


@dataclass(frozen=True)
class Campaign:
    """Cells of one scale, the seeds of each, and where the runs are kept and made."""

    cells: list[Cell]
    seeds: int
    scale: Scale
    store: Store
    folder: Path
    device: str = "cpu"

    def total(self) -> int:
        """Return how many runs there are in all, trials not counted."""
        return len(self.cells) * self.seeds

    def done(self) -> int:
        """Return how many of them are stored."""
        if self.scale.name not in self.store.scales:
            return 0
        rates = Rates(self.scale, self.store)
        settled = [cell for cell in map(rates.known, self.cells) if cell is not None]
        return sum(self.store.find(cell.key, seed) is not None for cell in settled for seed in range(self.seeds))

    def run(self, on_run: OnRun, stop: Stop) -> tuple[str, int]:
        """Make what is missing; return 'finished' or why it was stopped, and how many runs were made now."""
        made, done = 0, self.done()
        try:
            for label, job in self._missing(stop):
                if reason := stop():
                    raise Stopped(str(reason))
                begin = functools.partial(_begin, on_run, label, done)
                self.store.add(make_run(job, self.folder / "runs", begin, stop))
                made, done = made + 1, done + (not job.settings.validation)
        except Stopped as stopped:
            return stopped.reason, made
        return "finished", made

    def _missing(self, stop: Stop) -> Iterator[tuple[str, Job]]:
        """Yield the runs to make, each claimed until the next is asked for; it is stored by then."""
        rates, claims = Rates(self.scale, self.store), self.folder / ".claims"
        todo = [(cell, seed) for seed in range(self.seeds) for cell in self.cells]
        while todo:
            theirs, made = [], 0
            for cell, seed in todo:
                while (found := self._next(rates, cell, seed)) is not None:
                    label, job = found
                    with claim(claims, job.name) as ours:
                        if not ours:
                            theirs.append((cell, seed))
                            break
                        self.store.refresh()  # it may have been made before it was ours
                        if self.store.find(job.key, job.settings.seed) is None:
                            yield label, job
                            made += 1
                    forget(claims, job.name)
            if theirs and not made:
                _wait(stop)
                self.store.refresh()
            todo = theirs

    def _next(self, rates: Rates, cell: Cell, seed: int) -> tuple[str, Job] | None:
        """Return the run that a cell needs next, on the way to this seed, or nothing when it is there."""
        try:
            settled = rates.settled(cell)
        except Missing as missing:
            trial = missing.settings
            return f"{cell.row} at rate {trial.lr:g}, {trial.epochs} epochs", self._job(trial, 0)
        if self.store.find(settled.key, seed) is not None:
            return None
        settings = dataclasses.replace(settled.settings, seed=seed)
        looks = min(self.scale.evaluations, max(1, settings.epochs // EPOCHS_PER_LOOK))
        return f"{cell.label}, seed {seed}", self._job(settings, looks if cell.watched else 0, timed=cell.timed)

    def _job(self, settings: Settings, evaluations: int, *, timed: bool = False) -> Job:
        cuda = torch.device(self.device).type == "cuda"
        there = dataclasses.replace(settings, device=self.device, precision="bf16" if cuda else "float32")
        return Job(there, self.scale.name, evaluations, timed)

    def estimate(self) -> tuple[float, int]:
        """Return about how many seconds are to come, and for how many runs nothing is known of their time.

        What is known is the time of an epoch in stored runs of the same scale, model and size, on the same kind of
        device: of the fastest, as others may have shared theirs with further runs.
        """
        rates, paces = Rates(self.scale, self.store), self._paces()
        seconds, unknown = 0.0, 0
        searched: set[str] = set()
        for cell in self.cells:
            settled = rates.known(cell)
            runs = sum(settled is None or self.store.find(settled.key, seed) is None for seed in range(self.seeds))
            searches = {key_of(settings) for settings in rates.open_searches(cell)} - searched
            searched |= searches  # several cells may share a rate
            runs += TRIALS * len(searches)
            pace = paces.get(_kind(dict(dataclasses.asdict(cell.settings))))
            if pace is None:
                unknown += runs
            else:
                seconds += runs * pace * cell.settings.epochs
        return seconds, unknown

    def _paces(self) -> dict[tuple[str, ...], float]:
        """Return the least seconds of an epoch by kind of run."""
        device = torch.device(self.device).type
        paces: dict[tuple[str, ...], float] = {}
        for record in self.store.all():
            on_cpu = record.get("device", "").startswith("CPU")
            if record["scale"] == self.scale.name and on_cpu == (device == "cpu"):
                kind = _kind(record["settings"])
                paces[kind] = min(_pace(record), paces.get(kind, math.inf))
        return paces


@contextmanager
def claim(folder: Path, name: str) -> Iterator[bool]:
    """Say whether what has this name is ours until the block ends; nobody waits for another."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f"{name}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def forget(folder: Path, name: str) -> None:
    """Remove the file of a claim on something that is done: whoever waits for it finds it done."""
    (folder / f"{name}.lock").unlink(missing_ok=True)


def _wait(stop: Stop) -> None:
    """Let some time pass, unless it is time to stop."""
    if reason := stop():
        raise Stopped(str(reason))
    time.sleep(WAIT)


def _begin(on_run: OnRun, label: str, done: int, steps: int) -> OnStep | None:
    return on_run(label, steps, done)


def unique(cells: list[Cell]) -> list[Cell]:
    """Return one cell for each experiment, what the paper has first."""
    found: dict[tuple[str, ...], Cell] = {}
    for cell in sorted(cells, key=lambda cell: cell.extra):
        # Before its rate is found, a tuned cell has a key that stands for it, beside that of where it is looked for.
        found.setdefault((cell.key, *map(key_of, cell.searched_on)), cell)
    return list(found.values())


def _kind(settings: dict[str, object]) -> tuple[str, ...]:
    """Return what the time of an epoch depends on most."""
    return tuple(str(settings.get(name)) for name in ("model", "network"))


def _pace(record: Record) -> float:
    seconds, epochs = float(record["seconds"]), int(record["settings"]["epochs"])
    return seconds / max(1, epochs)
