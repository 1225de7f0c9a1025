"""Runs made before the source was divided anew are still read, resumed and counted: before/ holds them."""

import json
import math
import shutil
from pathlib import Path

import pytest

BEFORE = Path(__file__).parent / "before"


@pytest.fixture
def before(folder):
    """A copy of them, the present folder."""
    shutil.copytree(BEFORE, folder, dirs_exist_ok=True)
    return folder


def assert_same_rows(found, expected):
    """All numbers agree to float32's rounding, the seconds aside; a key may be new."""
    rows, wanted = ([json.loads(line) for line in path.read_text().splitlines()] for path in (found, expected))
    assert len(rows) == len(wanted)
    for row, want in zip(rows, wanted, strict=True):
        for key in want.keys() - {"seconds"}:
            assert_close(row[key], want[key], f"{key} at step {want['step']}")


def assert_close(found, want, where):
    if isinstance(want, list):
        assert len(found) == len(want), where
        for one, other in zip(found, want, strict=True):
            assert_close(one, other, where)
    elif want is None:
        assert found is None, where
    else:
        assert math.isclose(found, want, rel_tol=1e-4, abs_tol=1e-5), (where, found, want)


def test_a_stopped_run_of_the_simulator_ends_as_it_would_have(before, command):
    summary = command.well("train", "--resume", "simulator", "--json").document
    assert (summary["status"], summary["iterations"], summary["options"]["theta"]) == ("finished", 24, 0.3)
    assert_same_rows(before / "simulator" / "metrics.jsonl", before / "simulator-whole.jsonl")


def test_a_stopped_run_of_processes_ends_as_it_would_have(before, command):
    summary = command.well("train", "--resume", "processes", "--json").document
    assert (summary["status"], summary["engine"], summary["iterations"]) == ("finished", "processes", 36)
    assert_same_rows(before / "processes" / "metrics.jsonl", before / "processes-resumed.jsonl")


def test_a_report_shows_both(before, command):
    assert command.well("report", ".").out == "2 runs in report.html\n"
    page = (before / "report.html").read_text()
    assert "gossamer train --algorithm pc-asgd" in page and "--engine processes" in page


def test_a_stored_run_of_the_paper_counts(before, command):
    (row,) = (
        row
        for row in command.well("reproduce", "--list", "--json", "--out", "reproduced").document
        if row["name"] == "table-4"
    )
    assert row["scales"]["smoke"]["done"] == 1 and row["scales"]["quick"]["done"] == 0
