"""Learning rate and momentum of a tuned cell, looked up in the stored trials; what is to be tried next is told by name.

A trial is a run like any other, on held-out data, and is stored like one. So the search is a function of the store:
it goes as far as the trials reach and then says which run it needs next.

All rates are tried for a third of the epochs. From the best one the search goes on at full length, as long as that is
better: downwards, as a rule that predicts may fall apart late, and what is best in a short run is then too large for a
long one; else upwards, as what a large rate stirs up needs time to settle. The latter is left out where the next larger
rate did worse in a short run that was not all too short than the next smaller one.

With skewed labels the rate of equal data is where the search begins, and goes on at full length in the same way, down
or else up. The momentum stays that of equal data.
"""

import dataclasses
import math
from collections.abc import Callable

from gossamer.engine.settings import Settings
from gossamer.experiments.reproduce.cells import Cell, key_of, with_found
from gossamer.experiments.reproduce.scales import Scale, at_length, shortest_trial
from gossamer.experiments.reproduce.store import Record, Store
from gossamer.experiments.search import DIVERGED, FURTHER, Score, Search, rounded

THIRD = 3
TELLING = 10  # epochs: fewer do not tell that a larger rate is too large
STEPS = 4  # at most so many rates away from the best of the short trials

Found = tuple[float, Score]  # a rate, and how good it was at full length


class Missing(Exception):
    """A trial that has not been made, and the best at full length of those that have."""

    def __init__(self, settings: Settings, so_far: Found | None = None) -> None:
        super().__init__()
        self.settings, self.so_far = settings, so_far


class Rates:
    """Rates that were found, kept so that each is looked up once."""

    def __init__(self, scale: Scale, store: Store) -> None:
        self.scale, self.store = scale, store
        self._ladder = _ladder_of(scale.rates)
        self._found: dict[str, Found] = {}

    def settled(self, cell: Cell) -> Cell:
        """Return the cell with its rate, or raise Missing with the next trial."""
        if not cell.tune_on:
            return cell
        base = _at_best(cell, [(self._best(settings), settings) for settings in cell.tune_on])
        return base if cell.refine_on is None else _at_rate(base, self._near(cell.refine_on, base.settings)[0])

    def known(self, cell: Cell) -> Cell | None:
        """Return the cell with its rate, or nothing while that is not known."""
        try:
            return self.settled(cell)
        except Missing:
            return None

    def so_far(self, cell: Cell) -> Cell | None:
        """Return the cell with its rate, or with the best one of a search that has not ended, or nothing."""
        if (settled := self.known(cell)) is not None:
            return settled
        ends = [(self._best_so_far(settings), settings) for settings in cell.tune_on]
        found = [(best, settings) for best, settings in ends if best is not None]
        if not found:
            return None
        base = dataclasses.replace(_at_best(cell, found), tentative=True)
        try:
            self.settled(cell)
        except Missing as missing:
            refining = cell.refine_on is not None and missing.settings.partition == cell.refine_on.partition
            return _at_rate(base, missing.so_far[0]) if refining and missing.so_far else base
        return base

    def _best_so_far(self, settings: Settings) -> Found | None:
        try:
            return self._best(settings)
        except Missing as missing:
            return missing.so_far

    def _best(self, settings: Settings) -> Found:
        wanted = key_of(dataclasses.replace(settings, lr=1.0))
        if wanted not in self._found:
            self._found[wanted] = self._search(settings)
        return self._found[wanted]

    def _near(self, settings: Settings, base: Settings) -> Found:
        """Return the best rate of other settings, from that of the base on."""
        there = with_found(settings, base.lr, base.momentum, base.options.get("server_momentum"))
        if (wanted := key_of(there)) not in self._found:
            measure, place = self._measuring(there), self._ladder.index(base.lr)
            self._found[wanted] = self._climbed(place, (-1, 1), lambda lr: measure(lr, there.epochs))
        return self._found[wanted]

    def _climbed(self, place: int, ways: tuple[int, ...], measure: Callable[[float], Score]) -> Found:
        """Return the best rate that is reached from a place on, one way or else the other."""
        for way in ways:
            found = _climb(place, way, lambda at: measure(self._ladder[at]))
            if found != place:
                return self._ladder[found], measure(self._ladder[found])
        return self._ladder[place], measure(self._ladder[place])

    def _measuring(self, settings: Settings) -> Callable[[float, int], Score]:
        """Return what looks up the score of a rate and a length; a trial that is not there is Missing."""
        tried: dict[float, Score] = {}  # at full length

        def measure(lr: float, length: int) -> Score:
            trial = dataclasses.replace(at_length(settings, length), lr=lr)
            record = self.store.find(key_of(trial), trial.seed)
            if record is None:
                raise Missing(trial, max(tried.items(), key=lambda found: found[1], default=None))
            if length == settings.epochs:
                tried[lr] = score_of(record)
            return score_of(record)

        return measure

    def _search(self, settings: Settings) -> Found:
        epochs, measure = settings.epochs, self._measuring(settings)
        short = max(math.ceil(epochs / THIRD), shortest_trial(self.scale, settings))
        if short >= epochs:
            return Search("grid", self.scale.rates).run(measure, epochs)[:2]
        best = Search("grid", self.scale.rates).run(lambda lr, _: measure(lr, short), short)[0]
        place = self._ladder.index(best)
        smaller, larger = (measure(self._ladder[place + way], short) for way in (-1, 1))
        ways = (-1, 1) if larger > smaller or short < TELLING else (-1,)
        return self._climbed(place, ways, lambda lr: measure(lr, epochs))


def _at_best(cell: Cell, found: list[tuple[Found, Settings]]) -> Cell:
    """Return the cell with the rate and momenta of the highest score."""
    (lr, _), trial = max(found, key=lambda each: each[0][1])
    return cell.at(lr, trial.momentum, trial.options.get("server_momentum"))


def _at_rate(cell: Cell, lr: float) -> Cell:
    return dataclasses.replace(cell, settings=dataclasses.replace(cell.settings, lr=lr))


def _climb(place: int, way: int, measure: Callable[[int], Score]) -> int:
    """Return the place from which a further step this way no longer helps."""
    height = measure(place)
    for _ in range(STEPS):
        further = measure(place + way)
        if further <= height:
            break
        place, height = place + way, further
    return place


def _ladder_of(rates: tuple[float, ...]) -> list[float]:
    """Return the rates, and as many beyond their ends as a search may reach, each end at its own pace."""
    ladder = list(rates)
    for _ in range(FURTHER + STEPS + 1):
        ladder.insert(0, rounded(ladder[0] * rates[0] / rates[1], set(ladder)))
        ladder.append(rounded(ladder[-1] * rates[-1] / rates[-2], set(ladder)))
    return ladder


def score_of(record: Record) -> Score:
    """Return how good a trial was: by accuracy, of equal ones by the loss."""
    loss = record.get("loss")
    if record["status"] != "finished" or loss is None or not math.isfinite(loss):
        return DIVERGED
    return record["accuracy"], -loss
