"""Finds a learning rate for each algorithm on held-out training data.

One rate for all is not a fair comparison. Under delay D-ASGD moves at eta / (1 + tau b): it is slow at the best rate of
the others, and stable at rates where they diverge. All trials are kept in a file. A later search continues the
file, and `gossamer compare --tuned` reads its rates.
"""

import dataclasses
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.algorithms import parse_algorithm
from gossamer.engine.make_training import make_training
from gossamer.engine.training import OnStep
from gossamer.errors import UserError
from gossamer.run.settings import LARGEST_LR, Settings
from gossamer.run.strict_json import to_json
from gossamer.state.checkpoint import write_text
from gossamer.train.compare import Entry
from gossamer.train.rate_search import DIVERGED, Score, Search

NEVER = 2**40  # more steps than any run: evaluate at the end only


def key_of(entry: Entry) -> str:
    """Return the key of a rate: the algorithm with all its options, sorted."""
    options = sorted(entry.settings.options.items())
    return "/".join([entry.settings.algorithm, *(f"{name}={value}" for name, value in options)])


@dataclass(frozen=True)
class Trial:
    """One run of the search. Accuracy and loss are None if it diverged."""

    label: str
    lr: float
    epochs: int
    seed: int
    accuracy: float | None
    loss: float | None
    seconds: float


class Notebook:
    """The file of a search: the settings that all trials share, the trials, and the best rate of each algorithm."""

    def __init__(self, path: Path, settings: Settings) -> None:
        """Open the file, or begin a new one. Refuse a file with other settings."""
        self.path = path
        if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
            raise UserError(f"cannot write into '{path.parent}'; create that folder or choose another --out")
        self.settings = settings.identity("trials")
        self.trials: list[Trial] = []
        self.best: dict[str, dict[str, Any]] = {}
        if path.exists():
            document = read_notebook(path)
            check_same(document["settings"], self.settings, path)
            self.trials = [Trial(**trial) for trial in document["trials"]]
            self.best = document["best"]

    def find(self, label: str, lr: float, epochs: int, seed: int) -> Trial | None:
        """Return an earlier trial; None if there is none."""
        wanted = (label, lr, epochs, seed)
        return next((t for t in self.trials if (t.label, t.lr, t.epochs, t.seed) == wanted), None)

    def add(self, trial: Trial) -> None:
        """Add a trial and write the file."""
        self.trials.append(trial)
        self.write()

    def write(self) -> None:
        """Write the file atomically."""
        document = {
            "settings": self.settings,
            "best": self.best,
            "trials": [dataclasses.asdict(t) for t in self.trials],
        }
        text = json.dumps(json.loads(to_json(document)), indent=1, ensure_ascii=False)
        write_text(self.path, text + "\n")


def read_notebook(path: Path) -> dict[str, Any]:
    """Read a file that `gossamer tune` wrote."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        _check_document(document)
    except OSError as error:
        raise UserError(f"cannot read '{path}' ({error.strerror}); give a file that gossamer tune wrote") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"'{path}' is damaged or not written by gossamer tune; give another file") from None
    return document  # type: ignore[no-any-return]


def _check_document(document: dict[str, Any]) -> None:
    """Raise ValueError, KeyError or TypeError unless `gossamer tune` can have written the document."""
    rates = [found["lr"] for found in document["best"].values()]
    for trial in (Trial(**each) for each in document["trials"]):
        rates.append(trial.lr)
        named = isinstance(trial.label, str) and isinstance(trial.epochs, int) and isinstance(trial.seed, int)
        reached = (trial.accuracy, trial.loss)
        if not named or not all(value is None or isinstance(value, int | float) for value in reached):
            raise ValueError("a trial is damaged")
    if not all(isinstance(rate, int | float) and 0 < rate <= LARGEST_LR for rate in rates):
        raise ValueError("a rate is damaged")
    if not isinstance(document["settings"], dict):
        raise TypeError("the settings are damaged")


def check_same(tuned: dict[str, Any], wanted: dict[str, Any], path: Path) -> None:
    """Refuse rates that were tuned for another task, network or length of run."""
    for name, value in wanted.items():
        if tuned.get(name) != value:
            raise UserError(
                f"'{path}' was tuned with {name}={tuned.get(name)}, and this is {name}={value}; "
                "tune anew into another file, or use the same settings"
            )


def tune(
    entry: Entry,
    search: Search,
    notebook: Notebook,
    seeds: list[int],
    on_trial: Callable[[str, float, int, int], OnStep | None],
) -> dict[str, Any]:
    """Search the best rate of one algorithm. Return it with its accuracy, and add both to the notebook."""
    key = key_of(entry)

    def trial(lr: float, epochs: int, seed: int) -> Trial:
        if (earlier := notebook.find(key, lr, epochs, seed)) is not None:
            return earlier
        begun = time.perf_counter()
        training = make_training(_of_trial(entry.settings, lr, epochs, seed))
        summary = training.run(on_step=on_trial(entry.label, lr, training.length, seed), first_row=False).summary
        finished = summary["status"] == "finished"
        accuracy, loss = (summary["accuracy_mean"], summary["loss_mean"]) if finished else (None, None)
        notebook.add(Trial(key, lr, epochs, seed, accuracy, loss, round(time.perf_counter() - begun, 3)))
        return notebook.trials[-1]

    def score(lr: float, epochs: int) -> Score:
        trials = [trial(lr, epochs, seed) for seed in seeds]
        if any(one.accuracy is None or one.loss is None for one in trials):
            return DIVERGED
        accuracy = statistics.fmean(one.accuracy or 0.0 for one in trials)
        return accuracy, -statistics.fmean(one.loss or 0.0 for one in trials)

    lr, (accuracy, _), at_edge = search.run(score, entry.settings.epochs)
    found = {"lr": lr, "accuracy": accuracy if accuracy >= 0 else None, "at_edge": at_edge, "seeds": len(seeds)}
    found["trials"] = sum(one.label == key for one in notebook.trials)
    notebook.best[key] = found
    notebook.write()
    return found


def _of_trial(settings: Settings, lr: float, epochs: int, seed: int) -> Settings:
    """Return the settings of a trial. A run of given seconds is as much shorter as one of given epochs."""
    seconds = settings.seconds * epochs / settings.epochs
    return dataclasses.replace(
        settings, lr=lr, epochs=epochs, seed=seed, seconds=seconds, eval_every=NEVER, eval_seconds=0.0
    )


def with_tuned_rates(entries: list[Entry], path: Path) -> list[Entry]:
    """Return the entries with the learning rates of a file. The settings must be the same."""
    document = read_notebook(path)
    tuned = []
    for entry in entries:
        check_same(document["settings"], entry.settings.identity("rate"), path)
        key = key_of(entry)
        if "lr" in parse_algorithm(entry.label)[1]:
            raise UserError(f"'{entry.label}' names a learning rate, but the rates come from '{path}'; leave one out")
        found = document["best"].get(key)
        if found is None:
            known = ", ".join(document["best"]) or "none yet"
            raise UserError(f"'{key}' is not in '{path}', which has {known}; run gossamer tune --algorithms {key}")
        tuned.append(Entry(entry.label, dataclasses.replace(entry.settings, lr=found["lr"])))
    return tuned
