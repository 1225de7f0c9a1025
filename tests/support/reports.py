"""What the tests of reports share: runs, their rows, and the model that a page is made from."""

import json
import re
from pathlib import Path

import pytest

from gossamer.report.page_model import make_model
from gossamer.report.read_runs import read_runs
from runs import begin


def make_runs(folder: Path) -> Path:
    """Make a comparison's folder: pc-asgd with three seeds, dm-asgd with one."""
    for name, values in {
        "pc-0": {"seed": 0},
        "pc-1": {"seed": 1},
        "pc-2": {"seed": 2},
        "dm-0": {"algorithm": "dm-asgd", "lr": 0.2},
    }.items():
        run, run_folder = begin(folder / "runs" / name, **values)
        run.run(run_folder)
    return folder


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def write_rows(path: Path, rows: list[dict]) -> None:
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def model_of(*paths: Path) -> dict:
    return make_model(read_runs(list(paths))[0])


def chart(model: dict, key: str) -> dict:
    return next(one for one in model["charts"] if one["key"] == key)


def written_model(path: Path) -> dict:
    text = path.read_text(encoding="utf-8")
    found = re.findall(r'<script type="application/json" id="model">(.*?)</script>', text, flags=re.DOTALL)
    assert len(found) == 1
    return json.loads(found[0], parse_constant=pytest.fail)
