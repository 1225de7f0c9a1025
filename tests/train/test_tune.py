"""Learning rates found on held-out data: the search, what is kept of it, and its use in a comparison."""

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.data import Examples
from gossamer.errors import UserError
from gossamer.tasks import make_task
from gossamer.train.rate_search import DIVERGED, RATES, Search

SHORT = ("--epochs", 3, "--delay", 2, "--model", "linear", "--network", "clusters:2,2")


def peak_at(best: float, width: float = 1.0):
    """A score that falls off on both sides of the best rate, and what was asked of it."""
    asked: list[tuple[float, int]] = []

    def measure(lr: float, epochs: int) -> tuple[float, float]:
        asked.append((lr, epochs))
        return -abs(math.log(lr / best)) / width, 0.0

    return measure, asked


@given(st.floats(1e-4, 30.0), st.sampled_from(["grid", "halving"]))
def test_the_best_of_all_rates_tried_is_found_and_none_beyond_it_is_better(best, kind):
    measure, asked = peak_at(best)
    lr, score, at_edge = Search(kind).run(measure, 90)
    tried = {rate for rate, _ in asked}
    assert score == max(measure(rate, 90) for rate in tried)
    assert at_edge == (lr in (min(tried), max(tried)))


def test_a_grid_tries_every_rate_for_all_epochs():
    measure, asked = peak_at(0.1)
    Search("grid").run(measure, 90)
    assert asked == [(rate, 90) for rate in RATES]


def test_halving_keeps_a_third_for_three_times_as_long():
    measure, asked = peak_at(0.1)
    lr, _, _ = Search("halving").run(measure, 90)
    assert lr == 0.1
    assert [sum(epochs == rung for _, epochs in asked) for rung in (10, 30, 90)] == [6, 2, 1]


def test_runs_too_short_for_the_delay_are_left_out():
    measure, asked = peak_at(0.1)
    Search("halving", shortest=20).run(measure, 90)
    assert [sum(epochs == rung for _, epochs in asked) for rung in (10, 30, 90)] == [0, 6, 2]


@pytest.mark.parametrize(("best", "beyond"), [(5.0, [3.0, 10.0]), (0.0005, [0.0009, 0.0003])])
def test_the_search_goes_beyond_the_edge(best, beyond):
    measure, asked = peak_at(best)
    lr, _, at_edge = Search("grid").run(measure, 9)
    assert [rate for rate, _ in asked[len(RATES) :]][: len(beyond)] == beyond
    assert not at_edge and lr in (*beyond, 0.003)


def test_of_equal_rates_the_smallest_wins():
    assert Search().run(lambda lr, epochs: (1.0 if 0.02 < lr < 0.5 else 0.0, 0.0), 9)[0] == 0.03


@pytest.mark.parametrize("rates", [(0.1,), (0.1, 0.1), (1.0, 0.1), (-1.0, 0.1), (0.1, math.inf)])
def test_rates_that_make_no_grid_are_refused(rates):
    with pytest.raises(UserError, match="rates must be"):
        Search(rates=rates)


def test_held_out_examples_come_from_the_training_data_alone():
    task = make_task("digits")
    held = task.held_out(0.2, seed=3)
    assert len(held.test) == round(0.2 * len(task.train)) and len(held.test) + len(held.train) == len(task.train)

    def rows(*parts: Examples) -> list[list[float]]:
        return sorted(row for part in parts for row in torch.cat([part.x, part.y[:, None]], 1).tolist())

    assert rows(held.train, held.test) == rows(task.train)
    again, other = task.held_out(0.2, seed=3), task.held_out(0.2, seed=4)
    assert torch.equal(held.test.x, again.test.x) and not torch.equal(held.test.x, other.test.x)


def test_what_was_tried_is_kept_and_not_tried_again(command):
    tune = ("tune", "-a", "sync,d-asgd", *SHORT, "--rates", "0.1,1", "--json")
    first = command.well(*tune).document
    kept = json.loads(Path("tuned.json").read_text())
    assert {(trial["label"], trial["lr"]) for trial in kept["trials"]} >= {
        ("sync", 0.1),
        ("sync", 1.0),
        ("d-asgd", 0.1),
    }
    for label, found in first["best"].items():
        trials = {
            t["lr"]: (t["accuracy"], -t["loss"]) for t in kept["trials"] if t["label"] == label and t["epochs"] == 3
        }
        assert found["lr"] == max(sorted(trials), key=trials.get) and found["accuracy"] == trials[found["lr"]][0]
    before = Path("tuned.json").read_text()
    assert command.well(*tune).document["best"] == first["best"]
    assert Path("tuned.json").read_text() == before


def test_a_comparison_uses_the_rates(command):
    command.well("tune", "-a", "sync,d-asgd", *SHORT, "--rates", "0.01,1")
    path = Path("tuned.json")
    document = json.loads(path.read_text())
    document["best"]["d-asgd"]["lr"] = 0.07
    path.write_text(json.dumps(document))
    compare = ("compare", "-a", "sync,d-asgd", *SHORT, "--seeds", 1, "--no-plots")
    rows = command.well(*compare, "--tuned", "tuned.json", "--json").document["results"]
    assert {row["label"]: row["lr"] for row in rows} == {"sync": document["best"]["sync"]["lr"], "d-asgd": 0.07}
    assert " 0.07 " in command.well(*compare, "--tuned", "tuned.json", "--out", "other").out


def test_rates_of_other_settings_and_unknown_files_are_refused(command):
    command.well("tune", "-a", "sync", *SHORT, "--rates", "0.1,1")
    compare = ("compare", "--seeds", 1, "--no-plots", "--tuned")
    assert "was tuned with delay=2, and this is delay=3" in command.refused(
        *compare, "tuned.json", "-a", "sync", *SHORT, "--delay", 3
    )
    assert "'d-asgd' is not in 'tuned.json'" in command.refused(*compare, "tuned.json", "-a", "d-asgd", *SHORT)
    assert "--lr 0.5 conflicts with" in command.refused(*compare, "tuned.json", "-a", "sync", *SHORT, "--lr", 0.5)
    assert "cannot read 'none.json'" in command.refused(*compare, "none.json", "-a", "sync", *SHORT)
    Path("odd.json").write_text("{}")
    assert "is damaged or not written by gossamer tune" in command.refused(*compare, "odd.json", "-a", "sync", *SHORT)
    assert "was tuned with epochs=3" in command.refused("tune", "-a", "sync", *SHORT, "--epochs", 4)


def test_tuning_needs_data_held_out(command):
    assert "validation must be above 0" in command.refused("tune", *SHORT, "--validation", 0)
    assert "validation must lie in [0, 1), got 1.5" in command.refused("train", *SHORT, "--validation", 1.5)
    assert "unknown search 'random'" in command.refused("tune", *SHORT, "--search", "random")


def test_a_rate_that_diverges_loses(command):
    found = command.well("tune", "-a", "p-asgd", *SHORT, "--rates", "0.01,1e6", "--json").document["best"]["p-asgd"]
    assert found["lr"] < 1e6 and found["accuracy"] is not None
    trials = json.loads(Path("tuned.json").read_text())["trials"]
    assert [trial["accuracy"] for trial in trials if trial["lr"] == 1e6] == [None]


def test_where_everything_diverges_smaller_rates_are_tried():
    asked = []
    lr, score, at_edge = Search().run(lambda lr, epochs: (asked.append(lr), DIVERGED)[1], 9)
    assert asked == [*RATES, 0.0009, 0.0003, 9e-05] and (lr, score, at_edge) == (9e-05, DIVERGED, True)


def test_rates_close_to_each_other_are_told_apart():
    measure, asked = peak_at(2.0)
    Search(rates=(1.0, 1.2)).run(measure, 9)
    tried = [rate for rate, _ in asked]
    assert len(set(tried)) == len(tried) == 5


def test_all_leaves_out_what_the_network_does_not_allow(command):
    outcome = command("compare", "-a", "all", "--network", "ring:4", *SHORT[:6], "--seeds", 1, "--no-plots", "--json")
    assert outcome.status == 0
    labels = [row["label"] for row in outcome.document["results"]]
    assert "pc-asgd/theta=pv" in labels and "sgp" in labels
    assert "gossamer: skipping asgd: asgd needs a server" in outcome.err and "asgd" not in labels
    left_out = [line for line in outcome.err.splitlines() if line.startswith("gossamer: skipping ")]
    assert all("link" in line for line in left_out) and not any(
        f" {label}:" in line for label in labels for line in left_out
    )


def test_a_rate_belongs_to_the_options_it_was_found_with(command):
    command.well("tune", "-a", "local-sgd", *SHORT, "--rates", "0.1,1", "--every", 2)
    assert list(json.loads(Path("tuned.json").read_text())["best"]) == ["local-sgd/every=2"]
    compare = ("compare", *SHORT, "--seeds", 1, "--no-plots", "--tuned", "tuned.json", "--json")
    rows = command.well(*compare, "-a", "local-sgd/every=2").document["results"]
    assert rows[0]["lr"] in (0.1, 1.0, 0.01, 10.0)
    assert "'local-sgd/every=3' is not in" in command.refused(*compare, "-a", "local-sgd", "--every", 3)
    assert "names a learning rate" in command.refused(*compare, "-a", "local-sgd/every=2/lr=0.7")


@pytest.mark.parametrize(
    "harm",
    [
        lambda document: document["best"]["sync"].update(lr="abc"),
        lambda document: document["best"].update(sync=3),
        lambda document: document["best"]["sync"].update(lr=-1),
        lambda document: document["trials"][0].update(accuracy="x"),
        lambda document: document["trials"][0].update(lr=None),
        lambda document: document.update(best=[]),
    ],
)
def test_a_damaged_file_is_refused(command, harm):
    command.well("tune", "-a", "sync", *SHORT, "--rates", "0.1,1")
    document = json.loads(Path("tuned.json").read_text())
    harm(document)
    Path("tuned.json").write_text(json.dumps(document))
    says = "'tuned.json' is damaged or not written by gossamer tune"
    assert says in command.refused("compare", "-a", "sync", *SHORT, "--tuned", "tuned.json")
    assert says in command.refused("tune", "-a", "sync", *SHORT)


def test_the_file_is_looked_at_before_anything_runs(command):
    assert "cannot write into 'nowhere'" in command.refused("tune", "-a", "sync", *SHORT, "--out", "nowhere/tuned.json")


def test_held_out_data_is_called_so(command):
    out = command.well("compare", "-a", "sync", *SHORT, "--seeds", 1, "--no-plots", "--validation", 0.3).out
    assert "on held-out training data" in out
    assert "held-out training data" in Path("reports/compare/results.md").read_text()
