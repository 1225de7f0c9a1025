"""How a learning rate is searched for: a grid, or successive halving, and beyond the edge where the best lies there."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from gossamer.errors import UserError, unknown_name

RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
KINDS = ("grid", "halving")
FURTHER = 3  # at most so many rates beyond the edge
FACTOR = 3  # halving's: a third of the rates goes on, for three times as long

Score = tuple[float, float]  # accuracy and minus the loss: the larger is the better
DIVERGED: Score = (-1.0, -math.inf)
Measure = Callable[[float, int], Score]  # of a rate and a number of epochs


@dataclass(frozen=True)
class Search:
    """What to try; `shortest` is the least number of epochs that says anything."""

    kind: str = "grid"
    rates: tuple[float, ...] = RATES
    shortest: int = 1

    def __post_init__(self) -> None:
        """Check the rates."""
        if self.kind not in KINDS:
            raise unknown_name("search", self.kind, KINDS)
        if len(self.rates) < 2 or list(self.rates) != sorted(set(self.rates)):
            raise UserError(f"rates must be two or more and go upwards, got {self.rates}; use for example 0.01,0.1,1")
        if not all(0 < rate < math.inf for rate in self.rates):
            raise UserError(f"rates must be positive and finite, got {self.rates}; use for example 0.01,0.1,1")

    def run(self, measure: Measure, epochs: int) -> tuple[float, Score, bool]:
        """Return the best rate, its score after all epochs, and whether it lies at the edge of what was tried."""
        left = list(self.rates)
        for rung in self._rungs(epochs) if self.kind == "halving" else ():
            left.sort(key=lambda rate: measure(rate, rung), reverse=True)
            left = left[: math.ceil(len(left) / FACTOR)]
        scores = {rate: measure(rate, epochs) for rate in sorted(left)}
        tried = {*self.rates}
        for _ in range(FURTHER):
            best = _best(scores)
            beyond = self._beyond(best, tried)
            if beyond is None:
                return best, scores[best], False
            tried.add(beyond)
            scores[beyond] = measure(beyond, epochs)
        best = _best(scores)
        return best, scores[best], self._beyond(best, tried) is not None

    def _rungs(self, epochs: int) -> list[int]:
        """Return the lengths of the shorter runs."""
        lengths = [math.ceil(epochs / FACTOR**2), math.ceil(epochs / FACTOR)]
        return [length for length in lengths if self.shortest <= length < epochs]

    def _beyond(self, best: float, tried: set[float]) -> float | None:
        """Return the next rate outwards, if the best is the largest or the smallest that was tried."""
        if best == min(tried):  # also where all diverge: of equal scores the smallest rate is the best
            return rounded(best * self.rates[0] / self.rates[1], tried)
        if best == max(tried):
            return rounded(best * self.rates[-1] / self.rates[-2], tried)
        return None


def rounded(rate: float, tried: set[float]) -> float:
    """Return a rate with as few digits as tell it from those that were tried."""
    return next(short for digits in range(1, 18) if (short := float(f"{rate:.{digits}g}")) not in tried)


def _best(scores: dict[float, Score]) -> float:
    """Return the rate of the largest score; of equal ones the smallest, which is the safer."""
    return max(sorted(scores), key=lambda rate: scores[rate])
