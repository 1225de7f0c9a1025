"""Settings from several sources: preset, file, flags and the text of the algorithm. Each overrides those before it.

A preset is a reading of the paper: values of settings and of algorithm options. docs/readings.md explains every line.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gossamer.algorithms import algorithm_class, parse_algorithm
from gossamer.algorithms.options import describe_options
from gossamer.algorithms.plugins import load_plugins
from gossamer.errors import unknown_name
from gossamer.run.settings import SETTING_NAMES, Settings, make_settings, read_settings

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},  # the recommended readings, which are the defaults of all settings and options
    # The paper as printed, as literally as possible: Algorithm 2 with the printed sign of the criterion, learning
    # rate 0.01 that drops to 0.001 at epoch 160 of 200, batch 128, lambda 1, tau 20.
    "paper": {
        "network": "paper-1",
        "delay": "20",
        "theta": "pv",
        "criterion": "literal",
        "granularity": "model",
        "lam": 1.0,
        "lam_form": "linear",
        "horizon": "sum",
        "mixing": "uniform",
        "lr": 0.01,
        "schedule": "step:160",
        "epochs": 200,
        "batch": 128,
        "momentum": 0.0,
        "weight_decay": 1e-4,
    },
    # What the public code does instead: momentum, delays in epochs, plain mixing at first (4 epochs of the digits
    # task), a choice for each tensor by cosine from the mixed point, no first-order prediction.
    "public-code": {
        "theta": "pv",
        "criterion": "public-code",
        "granularity": "tensor",
        "horizon": "public-code",
        "consensus_steps": 48,
        "mixing": "uniform",
        "clip_weights": "renormalised",
        "delay": "1",
        "delay_unit": "epoch",
        "reliable_delay": 1,
        "momentum": 0.95,
    },
}


def preset_values(name: str, algorithm: str) -> dict[str, Any]:
    """Return the settings of a preset, and those of its options that this algorithm has."""
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    known = {*SETTING_NAMES, *describe_options(algorithm_class(algorithm))}
    return {key: value for key, value in PRESETS[name].items() if key in known}


def with_file(path: Path | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given values on top of those of a file of settings, if there is one."""
    return {**(read_settings(path) if path is not None else {}), **given}


def merge_settings(values: Mapping[str, Any], preset: str | None = None) -> Settings:
    """Load the plugins, and return the settings: options in the algorithm's text override all other values."""
    load_plugins(values.get("plugin"))
    name, options = parse_algorithm(str(values.get("algorithm", Settings.algorithm)))
    base = {} if preset is None else preset_values(preset, name)
    return make_settings({**base, **values, **options, "algorithm": name})
