"""What each rule loses to delay on small tasks: each at its own learning rate, equal and skewed data, three seeds.

For each task, partition, delay and rule the rate is searched on a tenth of the training data (a grid, and beyond its
edge; two seeds on digits, one on small-cifar). Then seeds 0, 1 and 2 are trained on all of it and judged on the test
data. Every run is a line of the --out file; the same command continues it. delay_tables.py makes tables of it.

Tasks: digits (MLP, 40 epochs, plain SGD), digits-momentum (the same with momentum 0.9), and small-cifar (PreResNet-8 on
CIFAR-10 with images of half the size, see small_cifar.py).

Run from the root of the repository:
    python benchmarks/delay_study.py digits --rules sync,c-asgd,d-asgd,pc-asgd,dm-asgd,sdm-asgd --out study.jsonl
"""

import argparse
import dataclasses
import itertools
import json
import multiprocessing
import statistics
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

PLAIN = {"task": "digits", "epochs": 40, "execution": "stacked"}
SMALL = {"epochs": 4, "batch": 16, "momentum": 0.9, "weight_decay": 1e-4, "schedule": "cosine", "warmup": 0.25}
TASKS: dict[str, tuple[dict[str, Any], tuple[float, ...], tuple[int, ...]]] = {  # settings, rates, seeds of the search
    "digits": (PLAIN, (0.05, 0.1, 0.2, 0.4, 0.8), (1000, 1001)),
    "digits-momentum": (PLAIN | {"momentum": 0.9}, (0.0125, 0.025, 0.05, 0.1, 0.2), (1000, 1001)),
    "small-cifar": (SMALL | {"augment": "none", "execution": "stacked"}, (0.1, 0.2, 0.4), (1000,)),
}
UNDELAYED = ("sync", "c-asgd")  # rules that no delay changes
SEEDS, FURTHER, NEVER = (0, 1, 2), 3, 2**40


@dataclass(frozen=True)
class Cell:
    """One rule under one delay."""

    task: str
    partition: str
    tau: int
    rule: str


@dataclass(frozen=True)
class Trial:
    """One run of a cell; with `search` it is judged on held-out training data."""

    cell: Cell
    lr: float
    seed: int
    search: bool


def run(trial: Trial, device: str, images: str | None) -> dict[str, Any]:
    """Train once."""
    import gossamer as gm

    torch.set_num_threads(1)
    cell = trial.cell
    values = dict(TASKS[cell.task][0])
    task: Any = values.pop("task", None) or _small_cifar(images)
    if cell.task == "small-cifar" and cell.partition != "iid":
        values["norm_stats"] = "recalibrated"  # an agent that has seen few classes knows few statistics
    if trial.search:
        values["validation"] = 0.1
    result = gm.simulate(
        task,
        "paper-1",
        cell.rule,
        delay=cell.tau,
        partition=cell.partition,
        lr=trial.lr,
        seed=trial.seed,
        device=device,
        eval_every=NEVER,
        **values,
    )
    summary = result.summary
    return {
        **dataclasses.asdict(cell),
        "lr": trial.lr,
        "seed": trial.seed,
        "search": trial.search,
        "accuracy": summary["accuracy_mean"] if summary["status"] == "finished" else None,
        "predict": None if summary["predict_fraction"] is None else round(summary["predict_fraction"], 4),
    }


def _small_cifar(images: str | None) -> Any:
    from gossamer.data import Examples
    from gossamer.data.cifar import SETS
    from gossamer.nn import make_model
    from gossamer.tasks import Task, make_task

    if images is None or not Path(images).exists():
        from small_cifar import halved

        whole = make_task("cifar10", "preresnet:8")
        task = dataclasses.replace(whole, train=halved(whole.train), test=halved(whole.test))
        if images is not None:
            parts = {"x": task.train.x, "y": task.train.y, "test_x": task.test.x, "test_y": task.test.y}
            np.savez_compressed(images, **{name: part.numpy() for name, part in parts.items()})
        return task
    held = np.load(images)
    train, test = (
        Examples(torch.from_numpy(held[x]), torch.from_numpy(held[y])) for x, y in (("x", "y"), ("test_x", "test_y"))
    )
    prepare = SETS["cifar10"].normalize

    def model() -> nn.Module:
        return make_model("preresnet:8", (3, 16, 16), 10)

    return Task("cifar10", model, train, test, "preresnet:8", prepare=prepare)


class Study:
    """The lines of a file, and what is still to be run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.rows = [json.loads(line) for line in lines]

    def add(self, row: dict[str, Any]) -> None:
        """Keep a run."""
        self.rows.append(row)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def rows_of(self, cell: Cell) -> list[dict[str, Any]]:
        """Return the runs of a cell."""
        about = dataclasses.asdict(cell)
        return [row for row in self.rows if all(row[name] == value for name, value in about.items())]

    def of(self, cell: Cell, *, search: bool) -> list[dict[str, Any]]:
        """Return those of the search, or those that count."""
        return [row for row in self.rows_of(cell) if row["search"] == search]

    def score(self, cell: Cell, lr: float) -> float | None:
        """Return the mean accuracy of a rate on held-out data; None while seeds of the search are missing."""
        found = {row["seed"]: row["accuracy"] or 0.0 for row in self.of(cell, search=True) if row["lr"] == lr}
        return statistics.fmean(found.values()) if len(found) == len(TASKS[cell.task][2]) else None

    def rate(self, cell: Cell) -> tuple[float | None, list[float]]:
        """Return the best rate once the search has ended, and the rates that are still to be tried."""
        grid = TASKS[cell.task][1]
        rates = sorted({*grid, *(row["lr"] for row in self.of(cell, search=True))})
        scores = {lr: score for lr in rates if (score := self.score(cell, lr)) is not None}
        missing = [lr for lr in rates if lr not in scores]
        if missing:
            return None, missing
        best = max(rates, key=lambda lr: scores[lr])  # of equal ones the smallest
        beyond = best / 2 if best == rates[0] else best * 2 if best == rates[-1] else None
        if beyond is None or len(rates) >= len(grid) + FURTHER:
            return best, []
        return None, [beyond]

    def due(self, cell: Cell) -> list[Trial]:
        """Return the runs that a cell needs next."""
        best, rates = self.rate(cell)
        done = {(row["lr"], row["seed"], row["search"]) for row in self.rows_of(cell)}
        if best is None:
            wanted = [Trial(cell, lr, seed, True) for lr in rates for seed in TASKS[cell.task][2]]
        else:
            wanted = [Trial(cell, best, seed, False) for seed in SEEDS]
        return [trial for trial in wanted if (trial.lr, trial.seed, trial.search) not in done]

    def complete(self, cells: list[Cell], workers: int, device: str, images: str | None, seconds: float) -> None:
        """Run all that is missing, several at a time, and begin nothing after so many seconds."""
        begun = time.perf_counter()
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            running: dict[Future[dict[str, Any]], Trial] = {}
            while True:
                if time.perf_counter() - begun < seconds:
                    waiting = [trial for cell in cells for trial in self.due(cell) if trial not in running.values()]
                    for trial in waiting[: 2 * workers - len(running)]:
                        running[pool.submit(run, trial, device, images)] = trial
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    row = future.result()
                    del running[future]
                    self.add(row)
                    shown = "diverged" if row["accuracy"] is None else f"{100 * row['accuracy']:.1f} %"
                    print(
                        *(row[name] for name in ("task", "partition", "tau", "rule", "lr", "seed")), shown, flush=True
                    )

    def final(self, cell: Cell) -> list[dict[str, Any]]:
        """Return the runs that count, at the best rate; none before the search has ended."""
        best, _ = self.rate(cell)
        return [row for row in self.of(cell, search=False) if row["lr"] == best]


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help=", ".join(TASKS))
    parser.add_argument("--rules", default="sync,c-asgd,d-asgd,p-asgd,pc-asgd,dm-asgd,sdm-asgd")
    parser.add_argument("--taus", default="5,20,60")
    parser.add_argument("--partitions", default="iid,dirichlet:0.3")
    parser.add_argument("--out", type=Path, default=Path("delay-study.jsonl"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time, one thread each")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after so many seconds")
    parser.add_argument("--images", help="small-cifar's images as .npz, written at first use from $GOSSAMER_DATA")
    wanted = parser.parse_args()
    unknown = [task for task in wanted.tasks if task not in TASKS]
    if unknown or not wanted.tasks:
        sys.exit(f"unknown task '{unknown[0] if unknown else ''}'; use {', '.join(TASKS)}")
    taus = [int(tau) for tau in wanted.taus.split(",")]
    rules, partitions = wanted.rules.split(","), wanted.partitions.split(",")
    cells = [
        Cell(task, partition, tau, rule)
        for task, rule, partition, tau in itertools.product(wanted.tasks, rules, partitions, taus)
        if rule not in UNDELAYED or tau == taus[0]
    ]
    Study(wanted.out).complete(cells, wanted.workers, wanted.device, wanted.images, wanted.seconds)


if __name__ == "__main__":
    main()
