"""All settings of a run: one flat set, named like the command-line flags, read from and written to TOML."""

import dataclasses
import functools
import hashlib
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gossamer.algorithms import algorithm, algorithm_class, describe_algorithms
from gossamer.algorithms.options import describe_options, former_defaults, later_defaults, option, read_options
from gossamer.algorithms.plugins import is_file, split_plugins
from gossamer.errors import UserError, unknown_name
from gossamer.run.cores import MOST_THREADS, automatic_threads
from gossamer.run.target import parse_target
from gossamer.testbed.time_unit import MOST

LARGEST_LR = 1e38  # a larger value does not fit into float32
DEFAULT_DELAY = "20"  # as in the paper

Purpose = Literal["checkpoint", "rate", "trials", "experiment", "seeds"]
_NOTED = ("plugin", "log")  # saved in config.toml, without effect on any result
_MACHINE = ("data_dir", "device", "precision", "threads", "execution", "compile", "deterministic")
_EVALUATION = ("eval_every", "eval_examples", "checkpoint_every", "eval_seconds", "target")
_SEARCHED = ("algorithm", "options", "lr", "seed", "history", *_EVALUATION, *_MACHINE, *_NOTED)
# The settings that may differ between two runs that count as the same. `Settings.identity` says why.
IGNORED: dict[Purpose, tuple[str, ...]] = {
    "checkpoint": ("network", "clusters", "delay", "testbed", "graph_schedule", *_NOTED),
    "rate": ("validation", *_SEARCHED),
    "trials": _SEARCHED,
    "experiment": ("options", "seed", *_EVALUATION, *_MACHINE, *_NOTED),
    "seeds": ("seed", "execution", "data_dir"),
}
# Settings that came later: at their defaults they are no part of any identity, so that stored runs keep theirs.
_LATER = ("testbed", "step_seconds", "seconds", "eval_seconds", "target", "graph_schedule")
_FORMER_CHECKPOINT_EVERY = 10  # the default of stored runs, which differ from new ones in nothing else
# Part of an experiment's identity even at their defaults.
_SUBJECT = (
    *("task", "model", "network", "delay", "algorithm", "lr", "epochs", "batch", "momentum", "weight_decay"),
    *("schedule", "partition"),
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of one run. Identical settings give byte-identical output, timings aside."""

    task: str = option("digits", "data set: digits, cifar10, cifar100, mnist, fashion-mnist, synthetic, text:FILE")
    model: str = option("mlp", "model: mlp:64,32, linear, cnn, preresnet:110, densenet:100, transformer, …")
    data_dir: str | None = option(None, "folder of the data sets (default $GOSSAMER_DATA, or else the user cache)")
    augment: str = option("auto", "crop and flip images; auto: CIFAR only", choices=("auto", "none", "crop-flip"))
    network: str = option("paper-1", "graph of the agents: paper-1, clusters:3,5, ring:8, torus:4x4, file:net.json, …")
    clusters: str | None = option(None, "reliable clusters: sizes '3,5' or members '0,1,2/3,4'")
    delay: str | None = option(
        None,
        "delay of late messages: 20, uniform:5,60, geometric:0.1, gilbert:0.05,0.5,40, trace:FILE or matrix:FILE "
        "(default 20 as in the paper; with a network file: its own delay, or 0)",
    )
    delay_unit: str = option("step", "unit of the delay", choices=("step", "epoch"))
    loss: float = option(0.0, "probability that a message is lost")
    mixing: str = option("metropolis", "weights of the mixing matrix W", choices=("metropolis", "uniform"))
    lazy: bool = option(False, "mix with (I + W) / 2 instead of W")
    clip_weights: str = option("rebuilt", "weights of the clipping step", choices=("rebuilt", "renormalised"))
    reliable_delay: int = option(0, "delay of messages inside a cluster, in steps")
    startup: str = option(
        "wait",
        "what a late neighbour counts as before its first message arrives: nothing (wait), its step-0 message at age t "
        "(min) or at age tau (full)",
        choices=("wait", "min", "full"),
    )
    graph_schedule: str | None = option(
        None,
        "links in use in each step: one-peer, matching, regular:4 or edges:FILE; absences in steps: churn:600,60, "
        "link-churn:600,60 or FILE.csv; several joined by +",
    )
    algorithm: str = option("pc-asgd", "update rule; `gossamer algorithms` lists all")
    lr: float = option(0.1, "learning rate")
    epochs: int = option(50, "number of epochs")
    epoch_unit: str = option(
        "shard", "an epoch is one pass over each agent's shard, or over all data (global)", choices=("shard", "global")
    )
    batch: int = option(16, "mini-batch size of each agent")
    momentum: float = option(0.0, "momentum of the local SGD")
    nesterov: bool = option(False, "use Nesterov momentum")
    weight_decay: float = option(0.0, "weight decay of the local SGD; not part of the curvature estimate g*g")
    schedule: str = option("constant", "learning-rate schedule: constant, cosine, step:0.5,0.75 or step:160")
    warmup: float = option(0.0, "epochs of linear learning-rate warm-up")
    partition: str = option(
        "iid", "how the data is split among the agents: iid, dirichlet:0.3, classes:2, shares:1,2,…, replicate"
    )
    validation: float = option(
        0.0, "fraction of the training data to hold out and evaluate on instead of the test data"
    )
    init: str = option("common", "initial parameters of the agents", choices=("common", "independent", "zero"))
    seed: int = option(0, "random seed of initial parameters, data order, delays and random choices")
    eval_every: int = option(0, "evaluate after this many steps; 0: after every epoch")
    eval_examples: int = option(
        0, "evaluate on this many random test examples, and at the end on all; 0: always on all"
    )
    checkpoint_every: int = option(
        0,
        "save a checkpoint after this many epochs, and at the end; 0: after an epoch, at most every 10 seconds and for "
        "5 % of the time",
    )
    dtype: str = option("float32", "data type of states and gradients", choices=("float32", "float64"))
    precision: str = option(
        "float32", "precision of the model's arithmetic; states stay in dtype", choices=("float32", "tf32", "bf16")
    )
    execution: str = option(
        "auto",
        "how N models run: stacked into one, torch.func.vmap or a loop; auto: stacked on a GPU, and on a CPU the "
        "fastest of a short measurement",
        choices=("auto", "stacked", "vmap", "loop"),
    )
    compile: bool = option(False, "compile the model with torch.compile; slow to start")
    history: str = option(
        "state",
        "storage of past messages: as they are, rounded to bfloat16, or in host memory",
        choices=("state", "bf16", "host"),
    )
    norm_stats: str = option(
        "local",
        "BatchNorm statistics: local to each agent, mixed like the parameters, or recalibrated before each evaluation",
        choices=("local", "mixed", "recalibrated"),
    )
    testbed: str | None = option(
        None,
        "run in seconds on a testbed, which replaces the delay: lan:8, aws:oregon*3,virginia*3,tokyo*2, phones:16, "
        "bed.toml, …; `gossamer testbed` shows one",
    )
    step_seconds: float = option(1.0, "on a testbed: seconds of an iteration where its compute time is 1")
    seconds: float = option(0.0, "on a testbed: simulated seconds of the run; 0: until the epochs are done")
    eval_seconds: float = option(
        0.0, "on a testbed: evaluate after so many simulated seconds; 0: 50 times, or after every epoch"
    )
    target: str | None = option(
        None, "report seconds, steps and bytes until this mean test accuracy, 0.9, or this loss, loss:0.3"
    )
    deterministic: bool = option(False, "byte-identical results on the same GPU; slower")
    device: str = option("cpu", "torch device")
    plugin: str | None = option(
        None,
        "your own algorithms: comma-separated Python files or modules that call gm.register; this executes their code, "
        "so pass only code you trust",
    )
    log: str | None = option(None, "also log the metrics to these, comma-separated: csv, tensorboard, wandb")
    threads: int = option(
        1,
        "CPU threads, or auto: the idle cores, but 1 for linear and mlp; more than 1 helps only large models on idle "
        "cores, and changes the last digits",
    )
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the algorithm

    def __post_init__(self) -> None:
        """Check the values that do not depend on task, network or algorithm."""
        for name in ("epochs", "batch", "threads"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if self.threads > MOST_THREADS:
            raise UserError(f"threads must be at most {MOST_THREADS}, got {self.threads}; use auto or 1")
        for name in ("eval_every", "eval_examples", "checkpoint_every", "seed"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if not 0 < self.lr <= LARGEST_LR:
            raise UserError(f"lr must lie above 0 and be at most {LARGEST_LR:g}, got {self.lr}; use for example 0.05")
        if not 0 <= self.validation < 1:
            raise UserError(f"validation must lie in [0, 1), got {self.validation}; use for example 0.2")
        if self.precision != "float32" and self.dtype != "float32":
            raise UserError(f"precision={self.precision} needs dtype=float32, got {self.dtype}; change one of them")
        for name in ("step_seconds", "seconds", "eval_seconds"):
            value, least = getattr(self, name), 1e-6 if name == "step_seconds" else 0.0
            if not least <= value <= MOST:
                raise UserError(f"{name} must lie in [{least:g}, {MOST:g}], got {value}; use for example 0.2")
            if self.testbed is None and value != getattr(Settings, name):
                raise UserError(f"{name} is simulated time, which needs a testbed; add for example testbed=lan:8")
        if self.target is not None:
            parse_target(self.target)
        self._check_testbed()
        unstacked = self.execution in ("vmap", "loop")
        if unstacked and (self.precision == "bf16" or self.compile):
            what = "compile" if self.compile else "precision=bf16"
            raise UserError(f"{what} needs execution=stacked, got {self.execution}; leave one of them out")

    def _check_testbed(self) -> None:
        """Refuse settings of the delay in steps on a testbed."""
        if self.testbed is None:
            return
        for name in ("delay", "delay_unit", "loss", "reliable_delay", "startup"):
            if getattr(self, name) != getattr(Settings, name):
                raise UserError(
                    f"{name} is given in steps, and the testbed '{self.testbed}' has delays of its own; leave one of "
                    "them out"
                )
        if self.norm_stats == "mixed":
            raise UserError("norm_stats=mixed does not go with a testbed; use local or recalibrated")

    def identity(self, purpose: Purpose) -> dict[str, Any]:
        """Return the values that two runs must share to count as the same run for a purpose.

        | purpose      | the question                              | ignored                                         |
        |--------------|-------------------------------------------|-------------------------------------------------|
        | `checkpoint` | may this run continue from that file?     | network, clusters, delay, graph_schedule: a run |
        |              |                                           | folder copies their files under other names     |
        | `rate`       | does this learning rate apply?            | the algorithm and its options, which are the    |
        |              |                                           | key of the rate; lr, which is searched; seed,   |
        |              |                                           | validation, machine, evaluation, history        |
        | `trials`     | may this search continue that file?       | as `rate`, but not validation                   |
        | `experiment` | do these runs fill the same cell?         | seed, machine, evaluation                       |
        | `seeds`      | do these runs differ only by their seed?  | seed; execution, which `auto` chooses anew for  |
        |              |                                           | each run; data_dir                              |

        Machine: data_dir, device, precision, threads, execution, compile, deterministic. Evaluation: eval_every,
        eval_examples, checkpoint_every. All but `seeds` also ignore plugin and log. All but `checkpoint` and `seeds`
        fill in the default delay. `experiment` leaves out every value that equals its default, except those in
        `_SUBJECT`: so a new setting does not change the keys of existing runs if its default changes nothing. An option
        whose default has changed is left out at its *former* default, so that stored runs keep their keys
        (`stored_settings` reads them). `checkpoint` always has such an option.
        A rule whose numbers have changed has a revision above 1, which is part of `checkpoint` and `experiment`:
        results of its former self no longer match.
        """
        values = identifying({name: getattr(self, name) for name in (*SETTING_NAMES, "options")}, purpose)
        values = {
            name: value for name, value in values.items() if name not in _LATER or value != getattr(Settings, name)
        }
        if "checkpoint_every" in values:
            values["checkpoint_every"] = self.checkpoint_every or _FORMER_CHECKPOINT_EVERY
        if purpose == "checkpoint":
            if not self.eval_examples:  # a setting that came later
                del values["eval_examples"]
            values["options"] = self._options_of_checkpoints()
        if purpose in ("rate", "trials", "experiment"):
            values["delay"] = self.delay_or_default
        if purpose == "experiment":
            values["algorithm"] = algorithm_class(self.algorithm).name
            same = [name for name in values if name not in _SUBJECT and values[name] == getattr(Settings, name)]
            values = {name: value for name, value in values.items() if name not in same}
            values |= self._options_unlike(_default_options(self.algorithm) | _former_options(self.algorithm))
        revised = purpose in ("checkpoint", "experiment") and algorithm_class(self.algorithm).revision > 1
        return values | ({"revision": algorithm_class(self.algorithm).revision} if revised else {})

    @property
    def delay_or_default(self) -> str | None:
        """The delay. If none is given: the paper's, or None for a network file, which may have a delay of its own.

        A testbed has its own.
        """
        if self.testbed is not None:
            return "0"
        return DEFAULT_DELAY if self.delay is None and not self.network.startswith("file:") else self.delay

    def changed_options(self) -> dict[str, Any]:
        """Return the algorithm's options that differ from their defaults."""
        return self._options_unlike(_default_options(self.algorithm))

    def _options_unlike(self, known: Mapping[str, Any]) -> dict[str, Any]:
        rule = algorithm(self.algorithm, **self.options)
        return {name: getattr(rule, name) for name in known if getattr(rule, name) != known[name]}

    def _options_of_checkpoints(self) -> dict[str, Any]:
        """Return the options as given, less later ones at their default, and those whose default has changed."""
        defaults, later = _default_options(self.algorithm), later_defaults(algorithm_class(self.algorithm))
        given = {name: value for name, value in self.options.items() if name not in later or value != later[name]}
        return {**{name: defaults[name] for name in _former_options(self.algorithm)}, **given}

    def digest(self) -> bytes:
        """Return a hash of `identity("checkpoint")`. Checkpoints store it, so its bytes must never change."""
        values = self.identity("checkpoint")
        options = dict(values.pop("options"))
        return hashlib.sha256(json.dumps([values, options], sort_keys=True).encode()).digest()

    def to_toml(self) -> str:
        """Return the settings as TOML. Values of None are left out: TOML has no null."""
        lines = [
            f"{field.name} = {_toml_value(getattr(self, field.name))}"
            for field in dataclasses.fields(self)
            if field.name != "options" and getattr(self, field.name) is not None
        ]
        lines += [
            "",
            "[options]",
            *(f"{name} = {_toml_value(value)}" for name, value in self.options.items()),
        ]
        return "\n".join(lines) + "\n"


def identifying(values: Mapping[str, Any], purpose: Purpose) -> dict[str, Any]:
    """Return the values without those that may differ for this purpose."""
    return {name: value for name, value in values.items() if name not in IGNORED[purpose]}


def is_stale(identity: Mapping[str, Any]) -> bool:
    """Say whether an experiment, by its stored identity, was made with a former revision of its rule."""
    return bool(identity.get("revision", 1) < algorithm_class(identity["algorithm"]).revision)


SETTING_NAMES = tuple(field.name for field in dataclasses.fields(Settings) if field.name != "options")


@functools.cache  # `reproduce` asks for thousands of identities
def _default_options(name: str) -> dict[str, Any]:
    return {option: about["default"] for option, about in describe_options(algorithm_class(name)).items()}


@functools.cache
def _former_options(name: str) -> dict[str, Any]:
    return former_defaults(algorithm_class(name))


def stored_settings(values: Mapping[str, Any]) -> Settings:
    """Make the settings of a stored run from its identity: what was left out has the default of that time."""
    settings = {name: value for name, value in values.items() if name != "revision"}
    return make_settings({**_former_options(str(values["algorithm"])), **settings})


def make_settings(values: Mapping[str, Any]) -> Settings:
    """Make settings from values that may be text. Names that are not settings are options of the algorithm.

    Does not load plugins: inspecting a run must not execute its code.
    """
    plain = {name: value for name, value in values.items() if name in SETTING_NAMES}
    options = dict(values.get("options") or {})
    options |= {name: value for name, value in values.items() if name not in (*SETTING_NAMES, "options")}
    if plain.get("threads") == "auto":  # now, and once: a resumed run must have the same number
        plain["threads"] = automatic_threads(str(plain.get("model", Settings.model)))
    settings = Settings(**read_options(Settings, "a run", plain), options=options)
    _check_options(settings)
    return settings


def _check_options(settings: Settings) -> None:
    """Refuse a name that is neither a setting nor an option of this algorithm."""
    rule = algorithm_class(settings.algorithm)
    own = describe_options(rule)
    for name in settings.options:
        if name in own:
            continue
        if any(name in other["options"] for other in describe_algorithms()):
            raise UserError(f"{rule.name} has no option '{name}'; it takes: {', '.join(own)}")
        raise unknown_name("setting", name, [*SETTING_NAMES, *own])


def read_settings(path: Path) -> dict[str, Any]:
    """Read a TOML file of settings as values for `make_settings`. The [options] table is merged into the others."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read settings '{path}' ({error.strerror}); give a TOML file, as run.toml") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"'{path}' is not valid TOML ({error}); fix that line") from None
    if not isinstance(values.get("options", {}), dict):
        raise UserError(
            f"options in '{path}' must be a table, got {values['options']!r:.60}; write [options] above them"
        )
    for name, value in values.items():
        if isinstance(value, dict) and name != "options":
            raise unknown_name(f"table in '{path}'", name, ["options"])
    for name in ("network", "delay"):
        if isinstance(values.get(name), str):
            values[name] = _beside(path, values[name])
    if isinstance(values.get("graph_schedule"), str):
        values["graph_schedule"] = "+".join(_beside(path, part) for part in values["graph_schedule"].split("+"))
    bed = values.get("testbed")
    if isinstance(bed, str) and bed.endswith(".toml") and (path.parent / bed).exists():
        values["testbed"] = str(path.parent / bed)
    if isinstance(values.get("plugin"), str):
        values["plugin"] = ",".join(_plugin_beside(path, plugin) for plugin in split_plugins(values["plugin"]))
    options = values.pop("options", {})
    return {**options, **values}


def _beside(path: Path, text: str) -> str:
    """Find the file of 'file:FILE' or the like: beside the TOML file first, then in the current folder."""
    kind, _, rest = text.partition(":")
    found = path.parent / rest
    if kind in ("file", "trace", "matrix", "edges", "list") and found.exists():
        return f"{kind}:{found}"
    if text.endswith(".csv") and not rest and (path.parent / text).exists():  # a schedule
        return str(path.parent / text)
    return text


def _plugin_beside(path: Path, plugin: str) -> str:
    found = path.parent / plugin
    return str(found) if is_file(plugin) and found.exists() else plugin


def _toml_value(value: Any) -> str:
    """Write a plain value. JSON and TOML agree on strings, numbers and booleans, except for non-finite floats."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False)
