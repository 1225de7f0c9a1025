"""The stored runs of one cell: seeds folded into mean and standard deviation."""

import statistics
from dataclasses import dataclass
from typing import Any

from gossamer.paper.cells import Cell
from gossamer.paper.store import Record

USUAL_SPREAD = 0.6  # points: the median over places of the CIFAR results that have three seeds


@dataclass(frozen=True)
class Outcome:
    """The runs of one cell, at least one."""

    cell: Cell
    records: list[Record]

    @property
    def values(self) -> list[float]:
        """The quantity that the cell is about: accuracy in per cent, or the seconds of an epoch."""
        if self.cell.timed:
            return [statistics.median(record["epoch_seconds"]) for record in self.records]
        return [100 * record["accuracy"] for record in self.records]

    @property
    def mean(self) -> float:
        """Over seeds."""
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        """Over seeds, where there are two or more."""
        return statistics.stdev(self.values) if len(self.records) > 1 else None

    @property
    def spread(self) -> float:
        """The standard deviation over seeds, or what is usual where there is one seed only."""
        return USUAL_SPREAD if self.std is None else self.std

    def above(self, other: "Outcome") -> list[float]:
        """Return how much higher this one is, seed by seed, for the seeds that both have."""
        mine, theirs = (
            {record["seed"]: value for record, value in zip(each.records, each.values, strict=True)}
            for each in (self, other)
        )
        return [mine[seed] - theirs[seed] for seed in sorted(mine.keys() & theirs.keys())]

    @property
    def diverged(self) -> int:
        """How many runs ended because a loss was not finite."""
        return sum(record["status"] != "finished" for record in self.records)

    @property
    def text(self) -> str:
        """Mean, standard deviation and number of seeds, as '61.2 ± 0.4 (3)'."""
        digits = 3 if self.cell.timed else 1
        spread = "" if self.std is None else f" ± {self.std:.{digits}f}"
        ended = f", {self.diverged} diverged" if self.diverged else ""
        return f"{self.mean:.{digits}f}{spread} ({len(self.records)}{ended})"

    @property
    def rate(self) -> str:
        """The learning rate, with a question mark while it is looked for."""
        return f"{self.cell.settings.lr:g}" + ("?" if self.cell.tentative else "")

    @property
    def momentum(self) -> str:
        """Which momentum there is: the agents' own, or the server's."""
        settings = self.cell.settings
        at_server = settings.options.get("server_momentum")
        return f"server m {at_server:g}" if at_server else f"m {settings.momentum:g}"

    def predict_shares(self) -> tuple[list[float], list[list[float | None]]]:
        """Return the epochs and the shares of predicting steps, for each cluster: means over seeds."""
        rows = zip(*self._over_epochs("predict"), strict=True)
        told = {epoch: of_seeds for epoch, of_seeds in rows if all(of_seeds)}  # nothing is chosen before the first step
        return list(told), [[_mean(shares) for shares in zip(*of_seeds, strict=True)] for of_seeds in told.values()]

    def curve(self, name: str) -> tuple[list[float], list[float]]:
        """Return the epochs and the means over seeds of a column of the history."""
        epochs, rows = self._over_epochs(name)
        return epochs, [statistics.fmean(of_seeds) for of_seeds in rows]

    def _over_epochs(self, name: str) -> tuple[list[float], list[list[Any]]]:
        """Return the epochs at which all seeds were looked at, and a column of the history there, seed by seed."""
        of_seeds = [
            dict(zip(record["history"]["epoch"], record["history"][name], strict=True)) for record in self.records
        ]
        epochs = [epoch for epoch in of_seeds[0] if all(epoch in each for each in of_seeds)]
        return epochs, [[each[epoch] for each in of_seeds] for epoch in epochs]


def _mean(values: tuple[float | None, ...]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
