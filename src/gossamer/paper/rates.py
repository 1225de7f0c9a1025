"""Learning rate and momentum of a tuned cell, looked up in the stored trials, or else the next trial to make.

A trial is a run like any other, on held-out data, and is stored like one. So the search is a function of the store: it
goes as far as the trials reach, and then names the run that it needs next.

All rates are tried for a third of the epochs. From the best one the search continues at full length while that helps.
It goes down first: a rule that predicts may fail late, so the best rate of a short run may be too large for a long one.
Else it goes up: a large rate needs time to settle. It does not go up if the next larger rate did worse than the next
smaller one in short trials of ten epochs or more.

With skewed labels the search begins at the rate of equal data, or below it where a rule fails there. It continues at
full length in the same way, down or else up. The momentum stays that of equal data.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

from gossamer.paper.cells import AGENTS, HELD_OUT, Cell, Scale, at_length, key_of, with_found
from gossamer.paper.store import Outcome, Record, Store
from gossamer.run.settings import Settings
from gossamer.train.rate_search import DIVERGED, FURTHER, Score, Search, rounded

THIRD = 3
TELLING = 10  # epochs: fewer do not tell that a larger rate is too large
STEPS = 4  # a climb ends at most so many rates from its beginning
HOLDS = 2  # with skewed labels a rule fails if its accuracy is below that of equal data over this

Found = tuple[float, Score]  # a rate, and how good it was at full length


class Missing(Exception):
    """A trial that has not been made, and the best finished one at full length."""

    def __init__(self, settings: Settings, so_far: Found | None = None) -> None:
        super().__init__()
        self.settings, self.so_far = settings, so_far


class Rates:
    """The rates of one scale, each looked up once."""

    def __init__(self, scale: Scale, store: Store) -> None:
        self.scale, self.store = scale, store
        self._ladder = _ladder_of(scale.rates)
        self._found: dict[str, Found] = {}

    @functools.cached_property
    def former(self) -> "Rates":
        """The same for the stale runs."""
        return Rates(self.scale, self.store.former())

    def outcome(self, cell: Cell) -> Outcome | None:
        """Return what is stored of a cell at the best rate so far."""
        found = self.so_far(cell)
        records = [] if found is None else self.store.seeds_of(found.key)
        return Outcome(found, records) if found is not None and records else None

    def settled(self, cell: Cell) -> Cell:
        """Return the cell with its rate, or raise Missing with the next trial."""
        if not cell.tune_on:
            return cell
        found = [(self._best(settings), settings) for settings in cell.tune_on]
        base = _at_best(cell, found)
        if cell.refine_on is None:
            return base
        with_equal_data = max(score for (_, score), _ in found)
        lr = self._near(cell.refine_on, base.settings, with_equal_data)
        return dataclasses.replace(base, settings=dataclasses.replace(base.settings, lr=lr))

    def open_searches(self, cell: Cell) -> list[Settings]:
        """Return where the cell's rate is not known yet."""
        if self.known(cell) is not None:
            return []
        return [there for there in cell.searched_on if there is cell.refine_on or not self._progress(there)[1]]

    def known(self, cell: Cell) -> Cell | None:
        """Return the cell with its rate, or None while that is not known."""
        try:
            return self.settled(cell)
        except Missing:
            return None

    def so_far(self, cell: Cell) -> Cell | None:
        """Return the cell with its rate, or with the best one of an unfinished search, or None."""
        if (settled := self.known(cell)) is not None:
            return settled
        ends = [(self._progress(settings)[0], settings) for settings in cell.tune_on]
        found = [(best, settings) for best, settings in ends if best is not None]
        # Until a search with skewed labels has ended, the rate of equal data counts: there are runs at that one.
        return dataclasses.replace(_at_best(cell, found), tentative=True) if found else None

    def _progress(self, settings: Settings) -> tuple[Found | None, bool]:
        """Return the best rate so far, and whether the search has ended."""
        try:
            return self._best(settings), True
        except Missing as missing:
            return missing.so_far, False

    def _best(self, settings: Settings) -> Found:
        wanted = key_of(dataclasses.replace(settings, lr=1.0))
        if wanted not in self._found:
            self._found[wanted] = self._search(settings)
        return self._found[wanted]

    def _near(self, settings: Settings, base: Settings, with_equal_data: Score) -> float:
        """Return the best rate with skewed labels. The search begins at that of equal data."""
        there = with_found(settings, base.lr, base.momentum, base.options.get("server_momentum"))
        if (wanted := key_of(there)) not in self._found:
            measuring, place = self._measuring(there), self._ladder.index(base.lr)

            def measure(at: int) -> Score:
                return measuring(self._ladder[at], there.epochs)

            # Where a rule fails, its accuracy does not say which way is better: go down until it works.
            down = range(place, place - STEPS - 1, -1)
            held = next((at for at in down if measure(at)[0] >= with_equal_data[0] / HOLDS), None)
            if held is None:
                best = max(down, key=measure)
                self._found[wanted] = self._ladder[best], measure(best)
            else:
                self._found[wanted] = self._climbed(held, (-1, 1) if held == place else (-1,), measure)
        return self._found[wanted][0]

    def _climbed(self, place: int, ways: tuple[int, ...], measure: Callable[[int], Score]) -> Found:
        """Return the best rate that a climb reaches, one way or else the other."""
        ends = (_climb(place, way, measure) for way in ways)
        best = next((end for end in ends if end != place), place)
        return self._ladder[best], measure(best)

    def _measuring(self, settings: Settings) -> Callable[[float, int], Score]:
        """Return a function of rate and length that looks up the score, or raises Missing."""
        tried: dict[float, Score] = {}  # at full length

        def measure(lr: float, length: int) -> Score:
            trial = dataclasses.replace(at_length(settings, length), lr=lr)
            record = self.store.find(key_of(trial), trial.seed)
            if record is None:
                raise Missing(trial, max(tried.items(), key=lambda found: found[1], default=None))
            if length == settings.epochs:
                tried[lr] = _score_of(record)
            return _score_of(record)

        return measure

    def _search(self, settings: Settings) -> Found:
        epochs, measure = settings.epochs, self._measuring(settings)
        short = max(math.ceil(epochs / THIRD), _shortest_trial(self.scale, settings))
        if short >= epochs:
            return Search("grid", self.scale.rates).run(measure, epochs)[:2]
        best = Search("grid", self.scale.rates).run(lambda lr, _: measure(lr, short), short)[0]
        place = self._ladder.index(best)
        smaller, larger = (measure(self._ladder[place + way], short) for way in (-1, 1))
        ways = (-1, 1) if larger > smaller or short < TELLING else (-1,)
        return self._climbed(place, ways, lambda at: measure(self._ladder[at], epochs))


def _at_best(cell: Cell, found: list[tuple[Found, Settings]]) -> Cell:
    """Return the cell with the rate and momenta of the highest score."""
    (lr, _), trial = max(found, key=lambda each: each[0][1])
    return cell.at(lr, trial.momentum, trial.options.get("server_momentum"))


def _climb(place: int, way: int, measure: Callable[[int], Score]) -> int:
    """Return the place from which one more step this way does not help."""
    height = measure(place)
    for _ in range(STEPS):
        further = measure(place + way)
        if further <= height:
            break
        place, height = place + way, further
    return place


def _ladder_of(rates: tuple[float, ...]) -> list[float]:
    """Return the rates, and beyond their ends as many as a search may reach, each end by its own factor."""
    ladder = list(rates)
    for _ in range(FURTHER + 3 * STEPS + 1):  # a search, a descent with skewed labels, and a climb from there
        ladder.insert(0, rounded(ladder[0] * rates[0] / rates[1], set(ladder)))
        ladder.append(rounded(ladder[-1] * rates[-1] / rates[-2], set(ladder)))
    return ladder


def _shortest_trial(scale: Scale, settings: Settings) -> int:
    """Return the fewest epochs that say something about a rule under delay: four delays."""
    steps_per_epoch = -(-round((1 - HELD_OUT) * scale.examples) // (AGENTS[settings.network] * scale.batch))
    return max(1, -(-4 * int(settings.delay or 0) // steps_per_epoch))


def _score_of(record: Record) -> Score:
    """Return how good a trial was: its accuracy, then its loss."""
    loss = record.get("loss")
    if record["status"] != "finished" or loss is None or not math.isfinite(loss):
        return DIVERGED
    return record["accuracy"], -loss
