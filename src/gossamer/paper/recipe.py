"""What a result of the paper consists of: its cells, the printed numbers, and what they are said to show."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gossamer.paper.cells import Cell
from gossamer.paper.printed import Place, Reported
from gossamer.paper.scales import (
    PROTOCOLS,
    Scale,
    Setting,
    settings_for,
    skewed_trial,
    trial_settings,
)

# Rows by the names that the paper and the pages use.
ALGORITHMS = {
    "PC-ASGD": "pc-asgd/theta=pv",
    "P-ASGD": "p-asgd",
    "C-ASGD": "c-asgd",
    "D-ASGD": "d-asgd",
    "AD-PSGD": "ad-psgd",
    "DC-S3GD": "dc-s3gd",
    "DASGD-IS": "dasgd-is",
    "Adaptive Braking": "adaptive-braking",
    "DM-ASGD": "dm-asgd",
    "synchronous": "sync",
    "PC-ASGD, descent": "pc-asgd/theta=pv/criterion=descent",
    "PC-ASGD, theta 0.3": "pc-asgd/theta=0.3",
}
FAMILY = ("PC-ASGD", "D-ASGD", "C-ASGD", "P-ASGD")
CEILING = "synchronous"
BEYOND = (CEILING, "DM-ASGD", "PC-ASGD, descent", "PC-ASGD, theta 0.3")  # rows that the paper lacks


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


def make_cell(scale: Scale, protocol: str, where: Setting, row: str, column: str, text: str = "") -> Cell:
    """Return the cell of an algorithm: by its row's name, or by a text such as 'pc-asgd/theta=uniform'."""
    text = text or ALGORITHMS[row]
    settings = settings_for(scale, protocol, where, text)
    cell = Cell(row, column, protocol, settings, extra=row in BEYOND)
    if protocol != "tuned":
        return cell
    tune_on, refine_on = trial_settings(scale, where, text), skewed_trial(scale, where, text)
    return dataclasses.replace(cell, tune_on=tune_on, refine_on=refine_on)


def has_case(scale: Scale, model: str, data: str) -> bool:
    """Whether a scale has something that stands for this model and data."""
    return model in scale.models and data in scale.tasks


def beats(row: str, rows: tuple[str, ...], columns: tuple[str, ...]) -> tuple[Claim, ...]:
    """Return the claims that a row is above all others of these columns."""
    return tuple(Claim((row, column), (other, column)) for column in columns for other in rows if other != row)
