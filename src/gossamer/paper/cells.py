"""What is run: scales, protocols, and the cells of a result with the settings of their runs.

A scale says what stands for the paper's models and data. A protocol says how learning rates are chosen. A cell is a
place in a table or figure. Cells with the same `Settings.identity("experiment")` are one experiment: it runs once,
whichever result asks for it.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gossamer.algorithms import algorithm, algorithm_class, parse_algorithm
from gossamer.algorithms.options import describe_options
from gossamer.algorithms.p_asgd import Predicting
from gossamer.errors import UserError
from gossamer.run.command_line import train_command
from gossamer.run.merge_settings import merge_settings
from gossamer.run.settings import Settings

PROTOCOLS = {
    "paper": "one learning rate for all, the printed criterion, plain SGD with weight decay",
    "tuned": "a learning rate for each rule, found on held-out training data; momentum 0.9 (for rules that predict or "
    "have a server: 0.9 or 0, whichever is better), warm-up, cosine",
}
HELD_OUT = 0.2  # of the training data, to choose a rate by
MOMENTUM, WARMUP, WEIGHT_DECAY = 0.9, 0.05, 1e-4  # the models' own recipe; the warm-up is a share of the epochs
SCHEDULE = "step:0.8"  # the paper's: the rate drops to a tenth after 80 % of the epochs
AGENTS = {"paper-1": 8, "paper-2": 5, "paper-3": 20}
FIRST_MODEL, FIRST_DATA = "PreResNet-110", "CIFAR-10"
EQUAL_DATA, SKEWED_DATA = PARTITIONS = ("iid", "dirichlet:0.3")
DEEP = "deep"  # a net of the paper's depth, where a smaller one stands for it
KEY_LENGTH = 12

# Rows by the names that the paper and the pages use.
ALGORITHMS = {
    "PC-ASGD": "pc-asgd/theta=auto",
    "PC-ASGD-PV": "pc-asgd/theta=pv",
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
# What the paper's PC-ASGD stands for: Algorithm 1 with our theta, which it leaves open, and the variant that was run.
READINGS = ("PC-ASGD", "PC-ASGD-PV")
PARTS = ("D-ASGD", "C-ASGD", "P-ASGD")  # of the paper's family without PC-ASGD itself
FAMILY = (*READINGS, *PARTS)
CEILING = "synchronous"
BEYOND = (CEILING, "DM-ASGD", "PC-ASGD, descent", "PC-ASGD, theta 0.3")  # rows that the paper lacks


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What stands for the paper's models and data, and how long it is trained."""

    name: str
    about: str
    models: Mapping[str, str]  # by the paper's name
    tasks: Mapping[str, str]
    examples: int = 50_000  # of the training data
    epochs: int
    short_epochs: int  # where there are more than a thousand runs
    long_epochs: int | None = None  # where the length of a run matters
    batch: int = 128
    lr: float  # the common one of the paper's protocol
    rates: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0)  # where the search for a rule's own begins
    seeds: int
    evaluations: int  # in a run that is watched, after the one of its start
    fewer_epochs: Mapping[str, int] = field(default_factory=dict)  # of models that take long

    def epochs_of(self, model: str) -> int:
        """Return how long a model is trained."""
        return self.fewer_epochs.get(model, self.epochs)


# Where there are 30 epochs in place of 200, the rate is ten times the paper's. Then rate times epochs is about the
# same, and plain SGD gets as far.
_ALL_SCALES = (
    Scale(
        name="smoke",
        about="digits and a small MLP in place of images and deep nets; a test of the code, not of the paper",
        models={"PreResNet-110": "mlp"},
        tasks={"CIFAR-10": "digits"},
        examples=1438,
        epochs=15,
        short_epochs=15,
        batch=16,
        lr=0.1,
        rates=(0.03, 0.1, 0.3),
        seeds=1,
        evaluations=5,
    ),
    Scale(
        name="quick",
        about="PreResNet-20 and DenseNet-BC-40 (k = 12) on the paper's data, 30 and 15 epochs unless told otherwise",
        models={"PreResNet-110": "preresnet:20", "DenseNet": "densenet:40,k=12", DEEP: "preresnet:110"},
        tasks={"CIFAR-10": "cifar10", "CIFAR-100": "cifar100"},
        epochs=30,
        short_epochs=10,
        long_epochs=100,
        lr=0.1,
        seeds=3,
        evaluations=10,
        fewer_epochs={"DenseNet": 15},  # each takes four times as long as PreResNet-20's
    ),
    Scale(
        name="full",
        about="the paper's protocol: PreResNet-110 and DenseNet-BC-100 (k = 12), 200 epochs, 6 seeds",
        models={"PreResNet-110": "preresnet:110", "DenseNet": "densenet:100,k=12"},
        tasks={"CIFAR-10": "cifar10", "CIFAR-100": "cifar100"},
        epochs=200,
        short_epochs=200,
        lr=0.01,
        seeds=6,
        evaluations=20,
    ),
)
SCALES = {scale.name: scale for scale in _ALL_SCALES}


@dataclass(frozen=True)
class Conditions:
    """Under what rules are compared: model and data by the paper's names, network, delay, and partition."""

    model: str = FIRST_MODEL
    data: str = FIRST_DATA
    network: str = "paper-1"
    delay: int = 20
    partition: str = EQUAL_DATA


@dataclass(frozen=True)
class Cell:
    """A place in a result, and the settings of its runs, without the seed.

    `tune_on`: on held-out data, where learning rate and momentum are searched. `refine_on`: where a second search
    continues from the rate that was found. Both are empty once the rate is known; the cell is `tentative` while the
    search is unfinished. `extra`: not in the paper. `timed`: measures the time of an epoch. `watched`: evaluated during
    the run, not only at its end. `number`: the delay or number of agents of its column, where columns have one.
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
    number: int = 0

    @property
    def label(self) -> str:
        """The text that --only searches."""
        return f"{self.row}, {self.column}, {self.protocol}"

    @functools.cached_property
    def key(self) -> str:
        """The experiment's name. A tuned cell has its final one when its rate is known."""
        return key_of(self.settings)

    @property
    def searched_on(self) -> tuple[Settings, ...]:
        """All settings at which the rate is searched."""
        return self.tune_on if self.refine_on is None else (*self.tune_on, self.refine_on)

    def at(self, lr: float, momentum: float, server_momentum: float | None = None) -> "Cell":
        """Return the cell with the rate and momenta that were found; the last is of rules with a server."""
        settings = with_found(self.settings, lr, momentum, server_momentum)
        return dataclasses.replace(self, settings=settings, tune_on=(), refine_on=None)


def key_of(settings: Settings) -> str:
    """Return a short name for the experiment."""
    return key_of_identity(settings.identity("experiment"))


def key_of_identity(identity: Mapping[str, Any]) -> str:
    """Return the same from the identity that is stored with a run."""
    text = json.dumps(identity, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


def command_of(settings: Settings) -> str:
    """Return the command that makes one run by itself."""
    apart = {name: getattr(settings, name) for name in ("seed", "device", "precision", "execution")}
    identity = settings.identity("experiment")
    identity.pop("revision", None)  # of the rule's code, not a setting
    return train_command({**identity, **settings.changed_options(), **apart})


def with_found(settings: Settings, lr: float, momentum: float, server_momentum: float | None) -> Settings:
    """Return settings with a rate and momenta."""
    found = {} if server_momentum is None else {"server_momentum": server_momentum}
    return dataclasses.replace(settings, lr=lr, momentum=momentum, options={**settings.options, **found})


def chosen(cells: list[Cell], only: list[str]) -> list[Cell]:
    """Return the cells whose label contains all of these texts; upper and lower case count as equal."""
    return [cell for cell in cells if all(text.lower() in cell.label.lower() for text in only)]


def make_cell(
    scale: Scale, protocol: str, where: Conditions, row: str, column: str, text: str = "", number: int = 0
) -> Cell:
    """Return the cell of an algorithm: by its row's name, or by a text such as 'pc-asgd/theta=uniform'."""
    text = text or ALGORITHMS[row]
    cell = Cell(row, column, protocol, settings_for(scale, protocol, where, text), extra=row in BEYOND, number=number)
    if protocol != "tuned":
        return cell
    tune_on, refine_on = trial_settings(scale, where, text), skewed_trial(scale, where, text)
    return dataclasses.replace(cell, tune_on=tune_on, refine_on=refine_on)


def settings_for(scale: Scale, protocol: str, where: Conditions, text: str) -> Settings:
    """Return the settings of one rule, such as 'pc-asgd/theta=pv'; a tuned one still lacks its own rate."""
    name, _ = parse_algorithm(text)
    epochs = scale.epochs_of(where.model)
    values: dict[str, Any] = {
        "task": scale.tasks[where.data],
        "model": scale.models[where.model],
        "network": where.network,
        "delay": _delay(name, where.delay),
        "partition": where.partition,
        "epochs": epochs,
        "batch": scale.batch,
        "lr": scale.lr,
        "schedule": SCHEDULE,
        "weight_decay": WEIGHT_DECAY,
        "execution": "stacked",  # not auto: a run must be the same on every machine
    }
    if where.partition != EQUAL_DATA:
        values["norm_stats"] = "recalibrated"  # with skewed labels an agent's own statistics fit its own data only
    if protocol == "tuned":
        values |= {"schedule": "cosine", "momentum": MOMENTUM, "warmup": WARMUP * epochs}
    if needs_plain_sgd(name):
        values |= {"momentum": 0.0, "weight_decay": 0.0}
        if protocol == "tuned" and takes_server_momentum(name):
            values["server_momentum"] = MOMENTUM
    return merge_settings({**values, "algorithm": text}, "paper")


def _delay(name: str, delay: int) -> str:
    """Return the delay of a run. One run stands for all delays if the rule waits or ignores late messages."""
    unaffected = algorithm_class(name).waits or (name == "c-asgd" and delay > 0)
    return "20" if unaffected else str(delay)


@functools.cache
def needs_plain_sgd(name: str) -> bool:
    """Whether a rule has its own momentum, or steps at a server, and takes no local momentum or weight decay."""
    try:
        algorithm(name).check_local(plain=False)
    except UserError:
        return True
    return False


@functools.cache
def takes_server_momentum(name: str) -> bool:
    """Whether a rule's server can have a momentum in place of the agents'."""
    if "server_momentum" not in describe_options(algorithm_class(name)):
        return False
    try:
        algorithm(name, server_momentum=MOMENTUM)
    except UserError:
        return False
    return True


def trial_settings(scale: Scale, where: Conditions, text: str) -> tuple[Settings, ...]:
    """Return where a rule's rate is searched: with the first model, on held-out first data, dealt out evenly.

    A rate depends on the rule, the delay and the network far more than on the image data or the BatchNorm net. A
    prediction carries the momentum tau steps forward, and a server's momentum carries stale gradients on. Both can be
    too far, so such rules are also tried without momentum.
    """
    trial = _trial(scale, dataclasses.replace(where, partition=EQUAL_DATA), text)
    if issubclass(algorithm_class(trial.algorithm), Predicting):
        return trial, dataclasses.replace(trial, momentum=0.0)
    if takes_server_momentum(trial.algorithm):
        return trial, dataclasses.replace(trial, options={**trial.options, "server_momentum": 0.0})
    return (trial,)


def skewed_trial(scale: Scale, where: Conditions, text: str) -> Settings | None:
    """Return where a rate is searched once more: with skewed labels some rules fail at the rate of equal data."""
    return None if where.partition == EQUAL_DATA else _trial(scale, where, text)


def _trial(scale: Scale, where: Conditions, text: str) -> Settings:
    place = dataclasses.replace(where, model=FIRST_MODEL, data=FIRST_DATA)
    return dataclasses.replace(settings_for(scale, "tuned", place, text), validation=HELD_OUT, seed=0)


def at_length(settings: Settings, epochs: int) -> Settings:
    """Return a run of another length; schedule and warm-up keep their share of it."""
    return dataclasses.replace(settings, epochs=epochs, warmup=settings.warmup * epochs / settings.epochs)
