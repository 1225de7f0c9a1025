"""What the rules compute on the digits, frozen. A change of any number here is a change of behaviour.

Rewrite the numbers only on purpose, and say why in the change log:

    GOSSAMER_REWRITE_GOLDEN=1 python -m pytest -n 0 tests/rules/test_golden.py
"""

import json
import os
from pathlib import Path

import pytest

from gossamer.algorithms import algorithm_names, parse_algorithm
from gossamer.engine import Training
from gossamer.run.settings import make_settings

GOLDEN = Path(__file__).parent / "golden" / "core.json"
REWRITE = os.environ.get("GOSSAMER_REWRITE_GOLDEN") == "1"
BUILT_IN = ("sync", "d-asgd", "p-asgd", "c-asgd", "pc-asgd", "dm-asgd")
LABELS = (*BUILT_IN, "pc-asgd/theta=pv")
ITERATIONS = 50


def measure(label):
    name, options = parse_algorithm(label)
    settings = {
        "network": "paper-1",
        "delay": "5",
        "epochs": 5,
        "seed": 0,
        "dtype": "float64",
        "lr": 0.1,
        "execution": "vmap",
    }
    training = Training(make_settings({"algorithm": name, **options, **settings}))
    summary = training.run(stop=lambda: training.simulation.t == ITERATIONS).summary
    assert summary["iterations"] == ITERATIONS
    row = training.evaluate(training.simulation.x, {})
    return {
        "loss_mean": sum(row["loss"]) / len(row["loss"]),
        "consensus_distance": sum(row["consensus"]) / len(row["consensus"]),
    }


def test_every_built_in_algorithm_is_frozen():
    assert set(BUILT_IN) <= set(algorithm_names())
    assert list(json.loads(GOLDEN.read_text())) == list(LABELS)


@pytest.mark.parametrize("label", LABELS)
def test_a_run_ends_where_it_always_did(label):
    expected = json.loads(GOLDEN.read_text())[label]
    assert measure(label) == pytest.approx(expected, rel=1e-6)


def test_no_two_algorithms_end_alike():
    ends = [tuple(end.values()) for end in json.loads(GOLDEN.read_text()).values()]
    assert len(set(ends)) == len(ends)


if REWRITE:
    GOLDEN.write_text(json.dumps({label: measure(label) for label in LABELS}, indent=2) + "\n")
