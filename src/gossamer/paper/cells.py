"""A cell of a table, or a point of a figure: its place, and the settings of the runs that fill it.

Cells with the same `Settings.identity("experiment")` are one experiment, whichever result asks for it: it runs once.
"""

import dataclasses
import functools
import hashlib
import json
from dataclasses import dataclass

from gossamer.paper.scales import Scale, Setting, settings_for, skewed_trial, trial_settings
from gossamer.report.grouping import train_command
from gossamer.run.settings import Settings

KEY_LENGTH = 12

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


def key_of(settings: Settings) -> str:
    """Return a short name for the experiment."""
    text = json.dumps(settings.identity("experiment"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


def command_of(settings: Settings) -> str:
    """Return the command that makes one run by itself."""
    apart = {name: getattr(settings, name) for name in ("seed", "device", "precision", "execution")}
    return train_command({**settings.identity("experiment"), **apart})


@dataclass(frozen=True)
class Cell:
    """A place in a result, and the settings of its runs but for the seed.

    With `tune_on` learning rate and momentum are the best of those settings on held-out data; with `refine_on` the rate
    is looked for once more, there, from the one that was found on. `extra` cells are not in the paper. A `timed` cell
    is there for the time that an epoch takes. A `watched` one is evaluated on the way, not only at its end. The rate of
    a `tentative` one is the best so far of a search that has not ended.
    """

    row: str
    column: str
    protocol: str
    settings: Settings
    tune_on: tuple[Settings, ...] = ()
    refine_on: Settings | None = None
    extra: bool = False
    timed: bool = False
    watched: bool = False
    tentative: bool = False

    @property
    def label(self) -> str:
        """What --only looks at."""
        return f"{self.row}, {self.column}, {self.protocol}"

    @functools.cached_property
    def key(self) -> str:
        """The experiment's name; of a tuned cell not before its rate is known."""
        return key_of(self.settings)

    @property
    def searched_on(self) -> tuple[Settings, ...]:
        """All settings at which the rate is looked for."""
        return self.tune_on if self.refine_on is None else (*self.tune_on, self.refine_on)

    def at(self, lr: float, momentum: float, server_momentum: float | None = None) -> "Cell":
        """Return the cell with what was looked for; the last of it belongs to rules with a server."""
        settings = with_found(self.settings, lr, momentum, server_momentum)
        return dataclasses.replace(self, settings=settings, tune_on=(), refine_on=None)


def with_found(settings: Settings, lr: float, momentum: float, server_momentum: float | None) -> Settings:
    """Return settings with a rate and momenta."""
    found = {} if server_momentum is None else {"server_momentum": server_momentum}
    return dataclasses.replace(settings, lr=lr, momentum=momentum, options={**settings.options, **found})


def chosen(cells: list[Cell], only: list[str]) -> list[Cell]:
    """Return the cells whose label contains all of these texts, in whichever case."""
    return [cell for cell in cells if all(text.lower() in cell.label.lower() for text in only)]


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
