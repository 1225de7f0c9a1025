"""All runs of some results: one seed of every cell first, then the next seed.

Several programs may work on one folder: each takes runs that no other is making, and all end when all runs are there.
A program claims a run with a lock of the operating system, which ends with the program.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from gossamer.engine.training import OnStep, Stop
from gossamer.paper.cells import Cell, Scale, key_of
from gossamer.paper.make_run import Job, Stopped, make_run
from gossamer.paper.rates import Missing, Rates
from gossamer.paper.store import Store
from gossamer.run.settings import Settings

OnRun = Callable[[str, int, int], OnStep | None]  # of a label, the steps, and the number of finished runs
EPOCHS_PER_EVALUATION = 3  # at least: an evaluation of all agents takes as long as a third of an epoch
TRIALS = 4  # the search for one rate takes about as long as so many runs
WAIT = 0.5  # seconds until it looks again for runs of other programs


@dataclass(frozen=True)
class Campaign:
    """Cells of one scale, the seeds of each, and where runs are stored and made."""

    cells: list[Cell]
    seeds: int
    scale: Scale
    store: Store
    folder: Path
    device: str = "cpu"

    def total(self) -> int:
        """Return the number of all runs, without trials."""
        return len(self.cells) * self.seeds

    def done(self) -> int:
        """Return the number of finished runs."""
        if self.scale.name not in self.store.scales:
            return 0
        rates = Rates(self.scale, self.store)
        settled = [cell for cell in map(rates.known, self.cells) if cell is not None]
        return sum(self.store.find(cell.key, seed) is not None for cell in settled for seed in range(self.seeds))

    def run(self, on_run: OnRun, stop: Stop) -> tuple[str, int]:
        """Make the missing runs; return 'finished' or why it stopped, and the number of runs made now."""
        made, done = 0, self.done()
        try:
            for label, job in self._missing(stop):
                if reason := stop():
                    raise Stopped(str(reason))

                def begin(steps: int, label: str = label, done: int = done) -> OnStep | None:
                    return on_run(label, steps, done)

                self.store.add(make_run(job, self.folder / "runs", begin, stop))
                made, done = made + 1, done + (not job.settings.validation)
        except Stopped as stopped:
            return stopped.reason, made
        return "finished", made

    def _missing(self, stop: Stop) -> Iterator[tuple[str, Job]]:
        """Yield the runs to make. Each is claimed until the caller asks for the next one, and is stored by then."""
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
                        self.store.refresh()  # another program may have made it before the claim
                        if self.store.find(job.key, job.settings.seed) is None:
                            yield label, job
                            made += 1
                    forget(claims, job.name)
            if theirs and not made:
                _wait(stop)
                self.store.refresh()
            todo = theirs

    def _next(self, rates: Rates, cell: Cell, seed: int) -> tuple[str, Job] | None:
        """Return the next run or trial that this seed of a cell needs, or None if it is stored."""
        try:
            settled = rates.settled(cell)
        except Missing as missing:
            trial = missing.settings
            return f"{cell.row} at rate {trial.lr:g}, {trial.epochs} epochs", self._job(trial, 0)
        if self.store.find(settled.key, seed) is not None:
            return None
        settings = dataclasses.replace(settled.settings, seed=seed)
        evaluations = min(self.scale.evaluations, max(1, settings.epochs // EPOCHS_PER_EVALUATION))
        return f"{cell.label}, seed {seed}", self._job(settings, evaluations if cell.watched else 0, timed=cell.timed)

    def _job(self, settings: Settings, evaluations: int, *, timed: bool = False) -> Job:
        cuda = torch.device(self.device).type == "cuda"
        there = dataclasses.replace(settings, device=self.device, precision="bf16" if cuda else "float32")
        return Job(there, self.scale.name, evaluations, timed)

    def estimate(self) -> tuple[float, int]:
        """Return the expected seconds of the missing runs, and the number of runs without a time estimate.

        Estimates come from the time of an epoch in stored runs of the same scale, model and network, on the same kind
        of device: of the fastest, as others may have shared their device with further runs.
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
            pace = paces.get((cell.settings.model, cell.settings.network))
            if pace is None:
                unknown += runs
            else:
                seconds += runs * pace * cell.settings.epochs
        return seconds, unknown

    def _paces(self) -> dict[tuple[str, str], float]:
        """Return the least seconds of an epoch by model and network."""
        on_cpu = torch.device(self.device).type == "cpu"
        paces: dict[tuple[str, str], float] = {}
        for record in self.store.all():
            if record["scale"] == self.scale.name and record.get("device", "").startswith("CPU") == on_cpu:
                settings = record["settings"]
                kind = settings["model"], settings["network"]
                pace = record["seconds"] / max(1, settings["epochs"])
                paces[kind] = min(pace, paces.get(kind, math.inf))
        return paces


@contextmanager
def claim(folder: Path, name: str) -> Iterator[bool]:
    """Say whether the run of this name is ours until the block ends; does not wait for another program."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / f"{name}.lock", timeout=0):
            yield True
    except Timeout:
        yield False


def forget(folder: Path, name: str) -> None:
    """Remove the file of a claim on a finished run: programs that wait for it find the run stored."""
    (folder / f"{name}.lock").unlink(missing_ok=True)


def _wait(stop: Stop) -> None:
    """Wait a little, or raise Stopped."""
    if reason := stop():
        raise Stopped(str(reason))
    time.sleep(WAIT)


def unique(cells: list[Cell]) -> list[Cell]:
    """Return one cell for each experiment, the paper's first."""
    found: dict[tuple[str, ...], Cell] = {}
    for cell in sorted(cells, key=lambda cell: cell.extra):
        # Before the search, cells of one key may still get different rates: what they are tuned on belongs to the key.
        found.setdefault((cell.key, *map(key_of, cell.searched_on)), cell)
    return list(found.values())
