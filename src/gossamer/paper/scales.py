"""How large a reproduction is, and by which protocol: the paper's, or every rule at its own learning rate."""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gossamer.algorithms import algorithm, algorithm_class, parse_algorithm
from gossamer.algorithms.options import describe_options
from gossamer.algorithms.p_asgd import Predicting
from gossamer.errors import UserError
from gossamer.run.settings import Settings, make_settings
from gossamer.train.presets import preset_values

PROTOCOLS = {
    "paper": "one learning rate for all, the printed criterion, plain SGD with weight decay",
    "tuned": "a learning rate for each rule, found on held-out training data; momentum 0.9 (for rules that predict or "
    "have a server: 0.9 or 0, whichever is better), warm-up, cosine",
}
HELD_OUT = 0.2  # of the training data, to choose a rate by
MOMENTUM, WARMUP, WEIGHT_DECAY = 0.9, 0.05, 1e-4  # the models' own recipe; the warm-up is a share of the epochs
AGENTS = {"paper-1": 8, "paper-2": 5, "paper-3": 20}
FIRST_MODEL, FIRST_DATA, FIRST_PART = "PreResNet-110", "CIFAR-10", "iid"
DEEP = "deep"  # a net of the paper's depth, where a smaller one stands for it


@dataclass(frozen=True)
class Scale:
    """What stands for the paper's models and data, and how long it is trained."""

    name: str
    about: str
    models: Mapping[str, str]  # by the paper's name
    tasks: Mapping[str, str]
    examples: int  # of the training data
    epochs: int
    short_epochs: int  # where there are more than a thousand runs
    long_epochs: int | None  # where it matters how long a run is
    batch: int
    lr: float  # the common one of the paper's protocol
    schedule: str
    rates: tuple[float, ...]  # where the search for a rule's own begins
    seeds: int
    evaluations: int  # in a run that is watched, after the one of its start
    fewer_epochs: Mapping[str, int] = field(default_factory=dict)  # of models that take long

    def epochs_of(self, model: str) -> int:
        """Return how long a model is trained."""
        return self.fewer_epochs.get(model, self.epochs)


# The paper's shape, a drop to a tenth after 80 % of the epochs, at every scale. Where there are 30 epochs in place of
# 200, the rate is ten times the paper's: then rate times epochs is about the same, and plain SGD gets as far.
SCALES = {
    "smoke": Scale(
        name="smoke",
        about="digits and a small MLP in place of images and deep nets: shows that everything works, proves nothing",
        models={"PreResNet-110": "mlp"},
        tasks={"CIFAR-10": "digits"},
        examples=1438,
        epochs=15,
        short_epochs=15,
        long_epochs=None,
        batch=16,
        lr=0.1,
        schedule="step:0.8",
        rates=(0.03, 0.1, 0.3),
        seeds=1,
        evaluations=5,
    ),
    "quick": Scale(
        name="quick",
        about="PreResNet-20 and DenseNet-BC-40 (k = 12) on the paper's data, 30 and 15 epochs unless told otherwise",
        models={"PreResNet-110": "preresnet:20", "DenseNet": "densenet:40,k=12", DEEP: "preresnet:110"},
        tasks={"CIFAR-10": "cifar10", "CIFAR-100": "cifar100"},
        examples=50_000,
        epochs=30,
        short_epochs=10,
        long_epochs=100,
        batch=128,
        lr=0.1,
        schedule="step:0.8",
        rates=(0.01, 0.03, 0.1, 0.3, 1.0),
        seeds=3,
        evaluations=10,
        fewer_epochs={"DenseNet": 15},  # each takes four times as long as PreResNet-20's
    ),
    "full": Scale(
        name="full",
        about="the paper's protocol: PreResNet-110 and DenseNet-BC-100 (k = 12), 200 epochs, 6 seeds",
        models={"PreResNet-110": "preresnet:110", "DenseNet": "densenet:100,k=12"},
        tasks={"CIFAR-10": "cifar10", "CIFAR-100": "cifar100"},
        examples=50_000,
        epochs=200,
        short_epochs=200,
        long_epochs=None,
        batch=128,
        lr=0.01,
        schedule="step:0.8",
        rates=(0.01, 0.03, 0.1, 0.3, 1.0),
        seeds=6,
        evaluations=20,
    ),
}


@dataclass(frozen=True)
class Setting:
    """Where algorithms meet: model and data by the paper's names, network, delay, and how data is dealt out."""

    model: str = FIRST_MODEL
    data: str = FIRST_DATA
    network: str = "paper-1"
    delay: int = 20
    partition: str = FIRST_PART


def settings_for(scale: Scale, protocol: str, where: Setting, text: str) -> Settings:
    """Return the settings of one rule, such as 'pc-asgd/theta=pv'; a tuned one still lacks its own rate."""
    name, options = parse_algorithm(text)
    epochs = scale.epochs_of(where.model)
    values: dict[str, Any] = {
        **preset_values("paper", name),
        "task": scale.tasks[where.data],
        "model": scale.models[where.model],
        "network": where.network,
        "delay": _delay(name, where.delay),
        "partition": where.partition,
        "epochs": epochs,
        "batch": scale.batch,
        "lr": scale.lr,
        "schedule": scale.schedule,
        "weight_decay": WEIGHT_DECAY,
        "execution": "stacked",  # not auto: a run is to be the same everywhere
    }
    if where.partition != FIRST_PART:
        values["norm_stats"] = "recalibrated"  # with skewed labels an agent's own statistics fit its own data only
    if protocol == "tuned":
        values |= {"schedule": "cosine", "momentum": MOMENTUM, "warmup": WARMUP * epochs}
    if needs_plain_sgd(name):
        values |= {"momentum": 0.0, "weight_decay": 0.0}
        if protocol == "tuned" and takes_server_momentum(name):
            values["server_momentum"] = MOMENTUM
    return make_settings({**values, **options, "algorithm": name})


def _delay(name: str, delay: int) -> str:
    """Return the delay of a run; where a rule waits, or never hears what is late, one run stands for all delays."""
    deaf = algorithm_class(name).waits or (name == "c-asgd" and delay > 0)
    return "20" if deaf else str(delay)


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


def trial_settings(scale: Scale, where: Setting, text: str) -> tuple[Settings, ...]:
    """Return where a rule's rate is looked for: with the first model, on held-out first data, dealt out evenly.

    A rate depends on the rule, the delay and the network far more than on which of two sets of images and on which net
    with BatchNorm it is. A prediction carries the momentum tau steps forward, which may be too far, and a server's
    momentum carries gradients on that are late already: such rules are tried without it too.
    """
    trial = _trial(scale, dataclasses.replace(where, partition=FIRST_PART), text)
    if issubclass(algorithm_class(trial.algorithm), Predicting):
        return trial, dataclasses.replace(trial, momentum=0.0)
    if takes_server_momentum(trial.algorithm):
        return trial, dataclasses.replace(trial, options={**trial.options, "server_momentum": 0.0})
    return (trial,)


def skewed_trial(scale: Scale, where: Setting, text: str) -> Settings | None:
    """Return where a rate is looked for once more: with skewed labels some rules fall apart at that of equal data."""
    return None if where.partition == FIRST_PART else _trial(scale, where, text)


def _trial(scale: Scale, where: Setting, text: str) -> Settings:
    place = dataclasses.replace(where, model=FIRST_MODEL, data=FIRST_DATA)
    return dataclasses.replace(settings_for(scale, "tuned", place, text), validation=HELD_OUT, seed=0)


def at_length(settings: Settings, epochs: int) -> Settings:
    """Return a run of other length; schedules are shares of it, and the warm-up stays one."""
    return dataclasses.replace(settings, epochs=epochs, warmup=settings.warmup * epochs / settings.epochs)


def shortest_trial(scale: Scale, settings: Settings) -> int:
    """Return the epochs that say something about a rule under delay: four delays."""
    steps_per_epoch = -(-round((1 - HELD_OUT) * scale.examples) // (AGENTS[settings.network] * scale.batch))
    return max(1, -(-4 * int(settings.delay or 0) // steps_per_epoch))
