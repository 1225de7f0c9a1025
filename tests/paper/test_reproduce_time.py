"""The study in seconds: the choice of rates, what the page says, and a small study from the command line."""

import json

import pytest

from gossamer.paper.time_page import TIME, to_page
from gossamer.paper.time_study import RATES, SEARCH_SEED, TimeStudy, mean_seconds, read_rows

BED = "LAN"


def made_row(algorithm, seconds, *, lr=0.1, seed=0, search=False, accuracy=0.3, goodput=1.0, bed=BED):
    return {
        "bed": bed,
        "algorithm": algorithm,
        "lr": lr,
        "seed": seed,
        "search": search,
        "seconds_to_target": seconds,
        "accuracy": accuracy,
        "goodput": goodput,
        "status": "finished",
    }


def searched(algorithm, **more):
    """Rows of a search that 0.1 wins."""
    found = {0.05: (None, 0.33), 0.1: (20.0, 0.34), 0.2: (30.0, 0.34)}
    return [
        made_row(algorithm, seconds, lr=lr, seed=SEARCH_SEED, search=True, accuracy=accuracy, **more)
        for lr, (seconds, accuracy) in found.items()
    ]


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "data" / "time.jsonl"
    path.parent.mkdir()
    rows = [*searched("sync"), made_row("sync", 60.0, goodput=0.25), made_row("sync", 80.0, seed=1, goodput=0.25)]
    rows += [*searched("dm-asgd"), made_row("dm-asgd", 30.0), made_row("dm-asgd", 40.0, seed=1)]
    rows += [*searched("d-asgd"), made_row("d-asgd", 30.0), made_row("d-asgd", None, seed=1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return TimeStudy(path, "quick", 2)


def test_the_rate_reaches_the_target_first_or_comes_nearest(study):
    assert study.rate(BED, "dm-asgd") == 0.1
    for lr in RATES:
        study.rows.append(made_row("sgp", None, lr=lr, seed=SEARCH_SEED, search=True, accuracy=0.3 + lr))
    assert study.rate(BED, "sgp") == max(RATES)
    assert study.rate(BED, "dga") is None  # not searched yet


def test_only_what_is_missing_is_run(study):
    due = list(study.due())
    assert not [run for run in due if run.bed == BED and run.algorithm in ("sync", "dm-asgd", "d-asgd")]
    assert {run.lr for run in due if (run.bed, run.algorithm) == (BED, "sgp")} == set(RATES)
    assert len(due) == study.total() - 3 * (len(RATES) + 2) - 2 * (len(study.cells) - 3)  # finals wait for the search


def test_a_mean_needs_every_seed():
    assert mean_seconds([made_row("a", 20.0), made_row("a", 30.0)]) == 25.0
    assert mean_seconds([made_row("a", 20.0), made_row("a", None)]) is None


def test_a_damaged_line_does_not_count(tmp_path):
    (tmp_path / "rows").write_text(json.dumps(made_row("a", 1.0)) + "\n{half a li")
    assert len(read_rows(tmp_path / "rows")) == 1


def test_the_page_says_who_is_first_and_what_waiting_costs(study):
    page = to_page(study, "picture.png")
    assert "LAN 25 %, 2.0" in page  # sync computes a quarter of the time, and takes 70 s to 35
    assert "`dm-asgd` is first, after 35 s; `sync` takes 70 s. 1 of 2 asynchronous algorithms are faster" in page
    assert "| `d-asgd` | not reached (0.1) |" in page and "**35** (0.1)" in page


def test_a_small_study_is_made_and_continued(command, tmp_path):
    document = command.well("reproduce", "time", "--seeds", 1, "--json").document
    assert document["status"] == "finished"
    rows = read_rows(tmp_path / "results/data/time/smoke.jsonl")
    assert len(rows) == 6 and all(row["seconds_to_target"] is not None for row in rows)
    page = (tmp_path / "results/time-to-accuracy.md").read_text()
    assert "three AWS regions" in page and (tmp_path / "results/time-to-accuracy.png").is_file()
    assert "time-to-accuracy.md" in (tmp_path / "results/README.md").read_text()
    command.well("reproduce", "time", "--seeds", 1, "--json")
    assert len(read_rows(tmp_path / "results/data/time/smoke.jsonl")) == 6
    assert "asynchronous" in TIME.in_short(tmp_path / "results")
