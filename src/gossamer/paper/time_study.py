"""Which algorithm gets there first: seconds to an accuracy on five testbeds, each algorithm at its own learning rate.

Real CIFAR-10 with images of 8 x 8 pixels and a small MLP, so that two cores finish; messages count as those of a model
of the size that each testbed names. A run ends when it reaches the target, or at the end of its testbed's seconds. The
rate is searched on a tenth of the training data: the one that reaches the target first, or comes nearest.
"""

import dataclasses
import json
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from gossamer.algorithms import algorithm_names
from gossamer.data import Examples
from gossamer.engine.make_training import make_training
from gossamer.engine.training import Stop
from gossamer.errors import UserError
from gossamer.nn import make_model
from gossamer.paper.make_run import Stopped
from gossamer.run.metric_rows import agent_mean
from gossamer.run.settings import make_settings
from gossamer.run.strict_json import to_json
from gossamer.tasks import Task, make_task

Row = dict[str, Any]

RATES = (0.05, 0.1, 0.2)
SEARCH_SEED = 1000
POOL = 4  # pixels a side that become one
TEST_EXAMPLES = 2000
REACHED = "target reached"
# Rules that treat late messages unlike current ones are also run where only messages of age 0 are current.
STRICT = ", tolerance 0"
STRICT_TOO = ("d-asgd", "p-asgd", "c-asgd", "pc-asgd", "dm-asgd", "sdm-asgd")


@dataclass(frozen=True)
class TimedBed:
    """A testbed of the study."""

    name: str
    testbed: str
    network: str
    step_seconds: float
    seconds: float


BEDS = (
    TimedBed("LAN", "lan:8;model=100MB;tolerance=1", "clusters:8", 0.2, 120.0),
    TimedBed(
        "three AWS regions",
        "aws:oregon*3,virginia*3,tokyo*2;model=100MB;tolerance=1",
        "clusters:3,3,2",
        0.2,
        240.0,
    ),
    TimedBed(
        "three clouds",
        "clouds:aws:us-east-1*3,gcp:europe-west1*3,azure:japaneast*2;model=100MB;tolerance=1",
        "clusters:3,3,2",
        0.2,
        240.0,
    ),
    TimedBed("one agent 4 times slower", "lan:8;slow=7*4;model=100MB;tolerance=1", "clusters:8", 0.2, 240.0),
    TimedBed(
        "phones with churn",
        "phones:16;model=5MB;tolerance=1;compute=lognormal:1,0.3;schedule=churn:600,120",
        "regular:16,k=4,seed=1",
        2.0,
        2400.0,
    ),
)


@dataclass(frozen=True)
class TimeScale:
    """How much of the study is run."""

    task: str
    target: str
    beds: tuple[TimedBed, ...]
    algorithms: tuple[str, ...] | None  # None: all
    rates: tuple[float, ...]


SCALES = {
    "smoke": TimeScale("digits", "0.8", BEDS[1:2], ("sync", "d-asgd", "dm-asgd"), (0.2,)),
    "quick": TimeScale("cifar10", "0.34", BEDS, None, RATES),
}
SCALES["full"] = SCALES["quick"]


@dataclass(frozen=True)
class TimedRun:
    """One run of the study; a search is judged on held-out training data."""

    bed: str
    algorithm: str
    lr: float
    seed: int
    search: bool


@cache
def _task(name: str) -> Task:
    """Return the data of a scale; images of CIFAR-10 are made small."""
    if name == "digits":
        return make_task("digits", "mlp:32")
    whole = make_task("cifar10", "mlp:64")
    train, test = (_pooled(part) for part in (whole.train, whole.test))
    test = Examples(test.x[:TEST_EXAMPLES], test.y[:TEST_EXAMPLES])
    return dataclasses.replace(whole, model=lambda: make_model("mlp:64", (3, 8, 8), 10), train=train, test=test)


def _pooled(examples: Examples) -> Examples:
    small = torch.nn.functional.avg_pool2d(examples.x.float(), POOL).round()
    return Examples(small.to(examples.x.dtype), examples.y)


def run_timed(wanted: TimedRun, scale_name: str) -> Row:
    """Make one run, and return what it took to the target."""
    torch.set_num_threads(1)
    scale = SCALES[scale_name]
    bed = next(each for each in scale.beds if each.name == wanted.bed)
    strict = wanted.algorithm.endswith(STRICT)
    settings = make_settings(
        {
            "network": bed.network,
            "testbed": bed.testbed.replace("tolerance=1", "tolerance=0") if strict else bed.testbed,
            "step_seconds": bed.step_seconds,
            "seconds": bed.seconds,
            "eval_seconds": 10 * bed.step_seconds,
            "target": scale.target,
            "algorithm": wanted.algorithm.removesuffix(STRICT),
            "lr": wanted.lr,
            "seed": wanted.seed,
            "batch": 32,
            "execution": "stacked",
            "augment": "none",
            "validation": 0.1 if wanted.search else 0.0,
            "eval_examples": TEST_EXAMPLES if wanted.search else 0,
        }
    )
    training = make_training(settings, task=_task(scale.task))

    def reached() -> str | None:
        rows = training.history
        return REACHED if rows and agent_mean(rows[-1]["accuracy"]) >= float(scale.target) else None

    summary = training.run(stop=reached, first_row=False).summary
    best = summary["accuracy_best"]
    return {
        **dataclasses.asdict(wanted),
        **{name: summary[name] for name in ("seconds_to_target", "steps_to_target", "bytes_to_target")},
        "accuracy": None if best is None else round(best, 4),
        "goodput": round(summary["goodput"], 4),  # type: ignore[typeddict-item]
        "message_age": None if summary["message_age"] is None else round(summary["message_age"], 2),
        "status": summary["status"],
        "curve": []
        if wanted.search
        else [(round(row["sim_seconds"], 3), round(agent_mean(row["accuracy"]), 4)) for row in training.history],
    }


class TimeStudy:
    """The rows of a file, and what is still to be run."""

    def __init__(self, path: Path, scale_name: str, seeds: int) -> None:
        self.path, self.scale_name, self.scale, self.seeds = path, scale_name, SCALES[scale_name], seeds
        self.rows = read_rows(path)

    @property
    def cells(self) -> list[tuple[str, str]]:
        """The testbeds and algorithms."""
        names = self.scale.algorithms or (*algorithm_names(), *(name + STRICT for name in STRICT_TOO))
        return [(bed.name, name) for bed in self.scale.beds for name in names]

    def of(self, bed: str, algorithm: str, *, search: bool) -> list[Row]:
        """Return the rows of a cell."""
        return [row for row in self.rows if (row["bed"], row["algorithm"], row["search"]) == (bed, algorithm, search)]

    def rate(self, bed: str, algorithm: str) -> float | None:
        """Return the best rate; None while some are still to be tried."""
        tried = {row["lr"]: row for row in self.of(bed, algorithm, search=True)}
        if any(lr not in tried for lr in self.scale.rates):
            return None
        return max(self.scale.rates, key=lambda lr: _merit(tried[lr]))

    def finals(self, bed: str, algorithm: str) -> list[Row]:
        """Return the runs that count, by seed."""
        best = self.rate(bed, algorithm)
        found = {row["seed"]: row for row in self.of(bed, algorithm, search=False) if row["lr"] == best}
        return [found[seed] for seed in sorted(found) if seed < self.seeds]

    def due(self) -> Iterator[TimedRun]:
        """Yield the runs that can be made now."""
        for bed, name in self.cells:
            best = self.rate(bed, name)
            if best is None:
                tried = {row["lr"] for row in self.of(bed, name, search=True)}
                yield from (TimedRun(bed, name, lr, SEARCH_SEED, True) for lr in self.scale.rates if lr not in tried)
            else:
                seeds = {row["seed"] for row in self.finals(bed, name)}
                yield from (TimedRun(bed, name, best, seed, False) for seed in range(self.seeds) if seed not in seeds)

    def total(self) -> int:
        """Return the number of all runs."""
        return len(self.cells) * (len(self.scale.rates) + self.seeds)

    def complete(self, stop: Stop, on_run: Callable[[int, int], None], workers: int | None = None) -> None:
        """Make all runs that are missing, several at a time; raise Stopped when told to."""
        left = list(self.due())
        if not left:
            return
        _task(self.scale.task)  # a missing data set is reported here, not by a worker
        count = workers or os.cpu_count() or 1
        with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
            running: dict[Future[Row], TimedRun] = {}
            while True:
                reason = stop()
                if not reason:
                    waiting = (run for run in self.due() if run not in running.values())
                    for _, run in zip(range(2 * count - len(running)), waiting, strict=False):
                        running[pool.submit(run_or_refusal, run, self.scale_name)] = run
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    del running[future]
                    self.add(future.result())
                    on_run(len(self.rows), self.total())
        if reason:
            raise Stopped(str(reason))

    def add(self, row: Row) -> None:
        """Keep a run."""
        self.rows.append(row)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(to_json(row) + "\n")


def run_or_refusal(wanted: TimedRun, scale_name: str) -> Row:
    """Make a run, or say in its row why the algorithm cannot run there."""
    try:
        return run_timed(wanted, scale_name)
    except UserError as error:
        nothing = dict.fromkeys(("seconds_to_target", "steps_to_target", "bytes_to_target", "accuracy"))
        return {**dataclasses.asdict(wanted), **nothing, "status": str(error), "goodput": None, "curve": []}


def _merit(row: Row) -> tuple[int, float]:
    if row["seconds_to_target"] is not None:
        return 1, -row["seconds_to_target"]
    return 0, row["accuracy"] or 0.0


def read_rows(path: Path) -> list[Row]:
    """Return the stored runs; a damaged line does not count."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and {"bed", "algorithm", "lr", "seed", "search"} <= set(row):
            rows.append(row)
    return rows


def mean_seconds(rows: Sequence[Row]) -> float | None:
    """Return the mean seconds to the target; None unless every seed has reached it."""
    seconds = [row["seconds_to_target"] for row in rows]
    return statistics.fmean(seconds) if seconds and None not in seconds else None
