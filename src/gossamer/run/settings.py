"""All settings of a run, flat and named like the command line's flags; written to and read from TOML."""

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
from gossamer.algorithms.options import describe_options, option, read_options
from gossamer.algorithms.plugins import is_file, split_plugins
from gossamer.errors import UserError, unknown_name

LARGEST_LR = 1e38  # what is larger does not fit into float32
DEFAULT_DELAY = "20"  # the paper's

Purpose = Literal["checkpoint", "rate", "experiment", "seeds"]
_NOTED = ("plugin", "log")  # kept in config.toml; no number of a run depends on them
_MACHINE = ("data_dir", "device", "precision", "threads", "execution", "compile", "deterministic")
_LOOKS = ("eval_every", "checkpoint_every")
# The settings that may differ between two runs that count as the same. `Settings.identity` says why.
IGNORED: dict[Purpose, tuple[str, ...]] = {
    "checkpoint": ("network", "clusters", "delay", *_NOTED),
    "rate": ("algorithm", "options", "lr", "seed", "validation", "history", *_LOOKS, *_MACHINE, *_NOTED),
    "experiment": ("options", "seed", *_LOOKS, *_MACHINE, *_NOTED),
    "seeds": ("seed", "execution", "data_dir"),
}
# Part of an experiment's identity even at their defaults.
_SUBJECT = (
    *("task", "model", "network", "delay", "algorithm", "lr", "epochs", "batch", "momentum", "weight_decay"),
    *("schedule", "partition"),
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One run, completely: the same settings give the same bytes."""

    task: str = option("digits", "what to learn: digits, cifar10, cifar100, mnist, fashion-mnist, synthetic, text:FILE")
    model: str = option("mlp", "the model: mlp:64,32, linear, cnn, preresnet:110, densenet:100, transformer, …")
    data_dir: str | None = option(None, "folder of the data sets (default $GOSSAMER_DATA, else the user's cache)")
    augment: str = option("auto", "crop and flip images: auto does so for CIFAR", choices=("auto", "none", "crop-flip"))
    network: str = option(
        "paper-1", "who is linked with whom: paper-1, clusters:3,5, ring:8, torus:4x4, file:net.json, …"
    )
    clusters: str | None = option(None, "reliable clusters: sizes '3,5' or members '0,1,2/3,4'")
    delay: str | None = option(
        None,
        "20, uniform:5,60, geometric:0.1, gilbert:0.05,0.5,40, trace:FILE or matrix:FILE "
        "(default 20 as in the paper; a network file's own, or 0)",
    )
    delay_unit: str = option("step", "what the delay counts", choices=("step", "epoch"))
    loss: float = option(0.0, "probability that a message is lost")
    mixing: str = option("metropolis", "weights of W", choices=("metropolis", "uniform"))
    lazy: bool = option(False, "use (I + W) / 2")
    clip_weights: str = option("rebuilt", "the clipping step's weights", choices=("rebuilt", "renormalised"))
    reliable_delay: int = option(0, "delay inside clusters, in steps")
    startup: str = option("wait", "before the first late message", choices=("wait", "min", "full"))
    algorithm: str = option("pc-asgd", "the update rule; `gossamer algorithms` lists them")
    lr: float = option(0.1, "learning rate")
    epochs: int = option(50, "passes over the data")
    epoch_unit: str = option(
        "shard", "what a pass is: of each agent over its shard, or over all data", choices=("shard", "global")
    )
    batch: int = option(16, "examples in an agent's mini-batch")
    momentum: float = option(0.0, "of the local optimiser")
    nesterov: bool = option(False, "look ahead along the momentum")
    weight_decay: float = option(0.0, "of the local optimiser; kept out of g*g")
    schedule: str = option("constant", "learning rate over time: constant, cosine, step:0.5,0.75 or step:160")
    warmup: float = option(0.0, "epochs over which the learning rate rises")
    partition: str = option("iid", "how data is dealt out: iid, dirichlet:0.3, classes:2, shares:1,2,…, replicate")
    validation: float = option(0.0, "share of the training data to hold out and evaluate on, in place of the test data")
    init: str = option("common", "first parameters", choices=("common", "independent", "zero"))
    seed: int = option(0, "fixes start, data order, delays and chance")
    eval_every: int = option(0, "evaluate after this many steps; 0: after every epoch")
    checkpoint_every: int = option(10, "save after this many epochs, and always at the end")
    dtype: str = option("float32", "of states and gradients", choices=("float32", "float64"))
    precision: str = option(
        "float32", "of the model's arithmetic; states stay in dtype", choices=("float32", "tf32", "bf16")
    )
    execution: str = option(
        "auto",
        "how N models run: stacked into one, torch.func.vmap or a loop; auto takes stacked on a GPU and the fastest "
        "at start-up on a CPU",
        choices=("auto", "stacked", "vmap", "loop"),
    )
    compile: bool = option(False, "fuse the model with torch.compile; slow to start")
    history: str = option("state", "where late messages are kept", choices=("state", "bf16", "host"))
    norm_stats: str = option(
        "local",
        "BatchNorm statistics of an agent: local, mixed like parameters, or recalibrated before an evaluation",
        choices=("local", "mixed", "recalibrated"),
    )
    deterministic: bool = option(False, "the same bytes on every run of the same GPU, at some cost")
    device: str = option("cpu", "torch device")
    plugin: str | None = option(
        None,
        "rules of your own: Python files or modules, with commas between them, that gm.register; their code is run, "
        "so give only what you trust",
    )
    log: str | None = option(
        None, "write the metrics to these as well, with commas between them: csv, tensorboard, wandb"
    )
    threads: int = option(1, "CPU threads; more pay off for large models on idle cores, and change the last digits")
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the algorithm

    def __post_init__(self) -> None:
        """Check the ranges that do not depend on other parts."""
        for name in ("epochs", "batch", "checkpoint_every", "threads"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be 1 or more, got {getattr(self, name)}")
        for name in ("eval_every", "seed"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if not 0 < self.lr <= LARGEST_LR:
            raise UserError(f"lr must lie above 0 and be at most {LARGEST_LR:g}, got {self.lr}; use for example 0.05")
        if not 0 <= self.validation < 1:
            raise UserError(f"validation must lie in [0, 1), got {self.validation}; use for example 0.2")
        if self.precision != "float32" and self.dtype != "float32":
            raise UserError(f"precision={self.precision} needs dtype=float32, got {self.dtype}; change one of them")
        unstacked = self.execution in ("vmap", "loop")
        if unstacked and (self.precision == "bf16" or self.compile):
            what = "compile" if self.compile else "precision=bf16"
            raise UserError(f"{what} needs execution=stacked, got {self.execution}; leave one of them out")

    def identity(self, purpose: Purpose) -> dict[str, Any]:
        """Return the values that two runs must share to count as the same run for a purpose.

        | purpose      | the question                              | ignored                                         |
        |--------------|-------------------------------------------|-------------------------------------------------|
        | `checkpoint` | may this run continue from that file?     | network, clusters, delay: a run folder holds    |
        |              |                                           | them as files, so that their names change       |
        | `rate`       | does this learning rate apply?            | the algorithm and its options, under which the  |
        |              |                                           | rate is filed; lr, which is searched; seed,     |
        |              |                                           | validation, machine, evaluation, history        |
        | `experiment` | do these runs fill the same cell?         | seed, machine, evaluation                       |
        | `seeds`      | are these runs seeds of one setting?      | seed; execution, which `auto` measures for each |
        |              |                                           | run; data_dir                                   |

        Machine: data_dir, device, precision, threads, execution, compile, deterministic. Evaluation: eval_every,
        checkpoint_every. All but `seeds` also ignore plugin and log. `rate` and `experiment` fill in the default
        delay. `experiment` leaves out what equals its default, the subject of a run aside, so that a new option whose
        default changes nothing keeps all keys.
        """
        names = (*SETTING_NAMES, "options")
        values = {name: getattr(self, name) for name in names if name not in IGNORED[purpose]}
        if purpose in ("rate", "experiment"):
            values["delay"] = self.delay_or_default
        if purpose == "experiment":
            values["algorithm"] = algorithm_class(self.algorithm).name
            same = [name for name in values if name not in _SUBJECT and values[name] == getattr(Settings, name)]
            values = {name: value for name, value in values.items() if name not in same} | self.changed_options()
        return values

    @property
    def delay_or_default(self) -> str | None:
        """The delay, where none is given the paper's; None for a network file, which may hold its own."""
        return DEFAULT_DELAY if self.delay is None and not self.network.startswith("file:") else self.delay

    def changed_options(self) -> dict[str, Any]:
        """Return the algorithm's options that are not its defaults."""
        rule, known = algorithm(self.algorithm, **self.options), _default_options(self.algorithm)
        return {name: getattr(rule, name) for name in known if getattr(rule, name) != known[name]}

    def digest(self) -> bytes:
        """Return a fingerprint of the identity that a checkpoint keeps; its bytes must never change."""
        values = self.identity("checkpoint")
        options = dict(values.pop("options"))
        return hashlib.sha256(json.dumps([values, options], sort_keys=True).encode()).digest()

    def to_toml(self) -> str:
        """Return the settings as TOML; what is None is left out, as TOML has no such value."""
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


SETTING_NAMES = tuple(field.name for field in dataclasses.fields(Settings) if field.name != "options")


@functools.cache  # identities of experiments are made by the thousand
def _default_options(name: str) -> dict[str, Any]:
    return {option: about["default"] for option, about in describe_options(algorithm_class(name)).items()}


def make_settings(values: Mapping[str, Any]) -> Settings:
    """Make settings from values that may be text; names that no setting has are options of the algorithm.

    Plugins are left to whoever is going to train: who only looks at a run must not run its code.
    """
    plain = {name: value for name, value in values.items() if name in SETTING_NAMES}
    options = dict(values.get("options") or {})
    options |= {name: value for name, value in values.items() if name not in (*SETTING_NAMES, "options")}
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
    """Read a TOML file of settings as values for `make_settings`; the table of options is laid flat."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read settings '{path}' ({error.strerror}); give a TOML file, as run.toml") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"'{path}' is not valid TOML ({error}); mend that line") from None
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
    if isinstance(values.get("plugin"), str):
        values["plugin"] = ",".join(_plugin_beside(path, plugin) for plugin in split_plugins(values["plugin"]))
    options = values.pop("options", {})
    return {**options, **values}


def _beside(path: Path, text: str) -> str:
    """Look for the file of 'file:', 'trace:' or 'matrix:' beside the TOML file first, then in the present folder."""
    kind, _, rest = text.partition(":")
    found = path.parent / rest
    if kind in ("file", "trace", "matrix") and found.exists():
        return f"{kind}:{found}"
    return text


def _plugin_beside(path: Path, plugin: str) -> str:
    found = path.parent / plugin
    return str(found) if is_file(plugin) and found.exists() else plugin


def _toml_value(value: Any) -> str:
    """Write a plain value; JSON's strings, numbers and booleans are TOML's too, but for non-finite floats."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False)
