"""Learning rate and momentum of a tuned cell, looked up in the stored trials; what is to be tried next is told by name.

A trial is a run like any other, on held-out data, and is stored like one. So the search is a function of the store:
it goes as far as the trials reach and then says which run it needs next.

All rates are tried for a third of the epochs; from the best one the search goes down at full length as long as that is
better. A rule that predicts may fall apart late, and what is best in a short run is then too large for a long one.
"""

import dataclasses
import math
from collections.abc import Callable

from gossamer.engine.settings import Settings
from gossamer.experiments.reproduce.cells import Cell, key_of
from gossamer.experiments.reproduce.scales import Scale, at_length, shortest_trial
from gossamer.experiments.reproduce.store import Record, Store
from gossamer.experiments.search import DIVERGED, Score, Search

THIRD = 3
DOWN = 4  # at most so many rates below the best of the short trials


class Missing(Exception):
    """A trial that has not been made."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings


class Rates:
    """Rates that were found, kept so that each is looked up once."""

    def __init__(self, scale: Scale, store: Store) -> None:
        self.scale, self.store = scale, store
        self._found: dict[str, tuple[float, Score]] = {}

    def settled(self, cell: Cell) -> Cell:
        """Return the cell with its rate, or raise Missing with the next trial."""
        if not cell.tune_on:
            return cell
        found = [(self._best(settings), settings.momentum) for settings in cell.tune_on]
        (lr, _), momentum = max(found, key=lambda each: each[0][1])
        return cell.at(lr, momentum)

    def known(self, cell: Cell) -> Cell | None:
        """Return the cell with its rate, or nothing while that is not known."""
        try:
            return self.settled(cell)
        except Missing:
            return None

    def _best(self, settings: Settings) -> tuple[float, Score]:
        wanted = key_of(dataclasses.replace(settings, lr=1.0))
        if wanted not in self._found:
            self._found[wanted] = self._search(settings)
        return self._found[wanted]

    def _search(self, settings: Settings) -> tuple[float, Score]:
        def measure(lr: float, epochs: int) -> Score:
            trial = dataclasses.replace(at_length(settings, epochs), lr=lr)
            record = self.store.find(key_of(trial), trial.seed)
            if record is None:
                raise Missing(trial)
            return score_of(record)

        epochs = settings.epochs
        short = max(math.ceil(epochs / THIRD), shortest_trial(self.scale, settings))
        if short >= epochs:
            return Search("grid", self.scale.rates).run(measure, epochs)[:2]
        best = Search("grid", self.scale.rates).run(lambda lr, _: measure(lr, short), short)[0]
        best = _downwards(best, self.scale.rates, lambda lr: measure(lr, epochs))
        return best, measure(best, epochs)


def _downwards(lr: float, rates: tuple[float, ...], measure: Callable[[float], Score]) -> float:
    """Return the rate at which going down the ladder of rates no longer helps."""
    for _ in range(DOWN):
        lower = max((rate for rate in rates if rate < lr), default=float(f"{lr * rates[0] / rates[1]:.1g}"))
        if measure(lower) <= measure(lr):
            break
        lr = lower
    return lr


def score_of(record: Record) -> Score:
    """Return how good a trial was: by accuracy, of equal ones by the loss."""
    loss = record.get("loss")
    if record["status"] != "finished" or loss is None or not math.isfinite(loss):
        return DIVERGED
    return record["accuracy"], -loss
