"""Learning-rate search: a grid or successive halving, extended if the best rate is at the edge of the grid."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from gossamer.errors import UserError, unknown_name

RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
KINDS = ("grid", "halving")
FURTHER = 3  # most rates to try beyond the edge
FACTOR = 3  # of halving: keep a third of the rates, and run them three times as long

Score = tuple[float, float]  # (accuracy, minus the loss): larger is better
DIVERGED: Score = (-1.0, -math.inf)
Measure = Callable[[float, int], Score]  # (rate, epochs) -> score


@dataclass(frozen=True)
class Search:
    """The rates to try. `shortest` is the smallest meaningful number of epochs."""

    kind: str = "grid"
    rates: tuple[float, ...] = RATES
    shortest: int = 1

    def __post_init__(self) -> None:
        """Check the rates."""
        if self.kind not in KINDS:
            raise unknown_name("search", self.kind, KINDS)
        if len(self.rates) < 2 or list(self.rates) != sorted(set(self.rates)):
            raise UserError(
                f"rates must be two or more in ascending order, got {self.rates}; use for example 0.01,0.1,1"
            )
        if not all(0 < rate < math.inf for rate in self.rates):
            raise UserError(f"rates must be positive and finite, got {self.rates}; use for example 0.01,0.1,1")

    def run(self, measure: Measure, epochs: int) -> tuple[float, Score, bool]:
        """Return the best rate, its score after all epochs, and whether it is still at the edge of the tried rates."""
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
        """Return the lengths of the shorter runs of halving, in epochs."""
        lengths = [math.ceil(epochs / FACTOR**2), math.ceil(epochs / FACTOR)]
        return [length for length in lengths if self.shortest <= length < epochs]

    def _beyond(self, best: float, tried: set[float]) -> float | None:
        """Return the next rate to try, if the best one is the largest or the smallest so far; else None."""
        if best == min(tried):  # also if all diverge: of equal scores the smallest rate is best
            return rounded(best * self.rates[0] / self.rates[1], tried)
        if best == max(tried):
            return rounded(best * self.rates[-1] / self.rates[-2], tried)
        return None


def rounded(rate: float, tried: set[float]) -> float:
    """Return the rate with the fewest digits that distinguish it from the tried rates."""
    return next(short for digits in range(1, 18) if (short := float(f"{rate:.{digits}g}")) not in tried)


def _best(scores: dict[float, Score]) -> float:
    """Return the rate with the largest score. Of equal scores take the smallest rate, which is safer."""
    return max(sorted(scores), key=lambda rate: scores[rate])
