"""A result of the paper (its cells, the printed numbers, its claims) and what the stored runs say about it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gossamer.paper.cells import Cell
from gossamer.paper.outcomes import Outcome
from gossamer.paper.paper_tables import Place, Reported
from gossamer.paper.rates import Rates
from gossamer.paper.scales import PROTOCOLS, SCALES, Scale
from gossamer.paper.store import Record, Store


@dataclass(frozen=True)
class Claim:
    """The paper says that one place has a larger accuracy than another."""

    larger: Place
    smaller: Place


@dataclass(frozen=True)
class Recipe:
    """One table or figure. `kind` says how it is drawn and judged; `reading` what explains a difference."""

    name: str
    what: str
    kind: str
    cells: Callable[[Scale, str], list[Cell]] = field(default=lambda scale, protocol: [])
    needs: str = "CIFAR-10 and CIFAR-100 at quick and full"
    reported: Mapping[Place, Reported] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    reading: str = ""
    protocols: tuple[str, ...] = tuple(PROTOCOLS)

    def cells_of(self, scale: Scale, protocols: list[str]) -> list[Cell]:
        """Return the cells of those protocols that the result has, what the paper has first."""
        cells = [cell for name in protocols if name in self.protocols for cell in self.cells(scale, name)]
        return sorted(cells, key=lambda cell: cell.extra)


def beats(row: str, rows: tuple[str, ...], columns: tuple[str, ...]) -> tuple[Claim, ...]:
    """Return the claims that a row is above all others of these columns."""
    return tuple(Claim((row, column), (other, column)) for column in columns for other in rows if other != row)


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
