"""What the stored runs say about the cells of a result: seeds folded into mean and standard deviation."""

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gossamer.paper.cells import Cell
from gossamer.paper.printed import Place
from gossamer.paper.rates import Rates
from gossamer.paper.recipe import Recipe
from gossamer.paper.scales import SCALES, Scale
from gossamer.paper.store import Record, Store

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


@dataclass(frozen=True)
class Section:
    """One scale and protocol of a result: all its cells, and the outcomes of those that were run."""

    recipe: Recipe
    scale: Scale
    protocol: str
    cells: list[Cell]
    outcomes: dict[Place, Outcome]
    elsewhere: dict[Place, tuple[str, Outcome]] = field(default_factory=dict)  # what was run at another scale

    @property
    def about(self) -> str:
        """What is trained, and for how long: in a few words where all cells are alike."""
        kinds = {(cell.settings.model, cell.settings.task, cell.settings.epochs) for cell in self.cells}
        if len(kinds) > 1:
            return self.scale.about
        ((model, task, epochs),) = kinds
        place_of = next(name for name, stands_in in self.scale.models.items() if stands_in == model)
        return f"{model} in place of {place_of}, {task}, {epochs} epochs"

    @property
    def rows(self) -> list[str]:
        """In the order of the recipe."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """In the order of the recipe, or by their numbers where those are what counts."""
        columns = list(dict.fromkeys(cell.column for cell in self.cells))
        if self.recipe.kind not in ("delays", "sizes", "atlas"):
            return columns
        kinds = [number_in(name)[0] for name in columns]
        return sorted(columns, key=lambda name: (kinds.index(number_in(name)[0]), number_in(name)[1]))

    def environments(self) -> list[str]:
        """Say on what the runs were made."""
        runs = [record for outcome in self.outcomes.values() for record in outcome.records]
        return sorted({_environment(record) for record in runs})


def number_in(text: str) -> tuple[str, int]:
    """Return ' iid' and 5 of 'tau 5, iid'; the number is -1 where there is none."""
    digits = "".join(character for character in text.split(",")[0] if character.isdigit())
    return text.partition(",")[2], int(digits) if digits else -1


def _environment(record: Record) -> str:
    versions: dict[str, Any] = record.get("versions", {})
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"{record.get('device')}, {record.get('precision')}, {told}"


def make_section(recipe: Recipe, scale: Scale, protocol: str, store: Store) -> Section:
    """Look up everything that is stored of one scale and protocol."""
    rates, outcomes = Rates(scale, store), {}
    cells = recipe.cells_of(scale, [protocol])
    for cell in cells:
        found = rates.so_far(cell)
        records = [] if found is None else store.seeds_of(found.key)
        if found is not None and records:
            outcomes[cell.row, cell.column] = Outcome(found, records)
    return Section(recipe, scale, protocol, cells, outcomes)


def sections_of(recipe: Recipe, store: Store) -> list[Section]:
    """Return what is there of a result, the largest scale first; smoke only where there is nothing else."""
    scales = [scale for scale in reversed(SCALES.values()) if scale.name in store.scales]
    made = [make_section(recipe, scale, protocol, store) for scale in scales for protocol in recipe.protocols]
    sections = [dataclasses.replace(each, elsewhere=_elsewhere(each, made)) for each in made if each.outcomes]
    larger = [section for section in sections if section.scale.name != "smoke"]
    return larger or sections


def leading(sections: Sequence[Section]) -> list[Section]:
    """Return the sections of the scale with the most places, of equal ones the larger.

    A few runs at a large scale do not outweigh a smaller one where everything was run.
    """
    places: dict[str, int] = {}
    for section in sections:
        places[section.scale.name] = places.get(section.scale.name, 0) + len(section.outcomes)
    most = max(places, key=lambda name: places[name], default=None)  # of equal ones the first, which is the larger
    return [section for section in sections if section.scale.name == most]


def _elsewhere(section: Section, others: list[Section]) -> dict[Place, tuple[str, Outcome]]:
    """Return what other scales have of the same protocol, of several the largest."""
    return {
        place: (other.scale.name, outcome)
        for other in reversed(others)
        if other.protocol == section.protocol and other.scale is not section.scale
        for place, outcome in other.outcomes.items()
    }
