"""Presets: sets of readings of the paper. docs/readings.md explains every line.

A preset gives values for settings and algorithm options. Values from the user override them.
"""

from typing import Any

from gossamer.algorithms import algorithm_class
from gossamer.algorithms.options import describe_options
from gossamer.errors import unknown_name
from gossamer.run.settings import SETTING_NAMES

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
