import json
import math
import statistics
from pathlib import Path

import pytest

import gossamer as gm
from gossamer.algorithms import algorithm_class, parse_algorithm
from gossamer.cli.compare import DEMO, FAMILY
from gossamer.engine import Training, make_training
from gossamer.run.folder import safe_name, unused_folder
from gossamer.train.compare import plan, split_algorithms, to_markdown

SHORT = ("--epochs", 2, "--delay", 5, "--model", "linear", "--no-plots")


def test_compare_folds_seeds_into_mean_and_deviation(command, tmp_path):
    labels = ["sync", "pc-asgd/theta=pv", "dm-asgd"]
    arguments = ("compare", *SHORT, "-a", ",".join(labels), "--seeds", 3, "--seed", 4, "--out", "report", "--json")
    document = command.well(*arguments).document
    assert json.loads((tmp_path / "report/results.json").read_text()) == document
    assert set(document) == {
        "network",
        "delay",
        "task",
        "model",
        "epochs",
        "seeds",
        "validation",
        "testbed",
        "seconds",
        "results",
        "report_dir",
    }
    assert (document["network"], document["delay"], document["seeds"]) == ("paper-1", 5, 3)
    assert [row["label"] for row in document["results"]] == labels
    for row in document["results"]:
        alone = [
            gm.simulate(algorithm=row["label"], delay=5, epochs=2, model="linear", seed=s).summary for s in (4, 5, 6)
        ]
        accuracies = [summary["accuracy_mean"] for summary in alone]
        assert row["accuracy_per_seed"] == accuracies and row["seeds"] == [4, 5, 6] and row["diverged"] == 0
        assert row["accuracy_mean"] == pytest.approx(statistics.mean(accuracies))
        assert row["accuracy_std"] == pytest.approx(statistics.stdev(accuracies))
        for key in ("loss_mean", "consensus_distance", "accuracy_average_model"):
            assert row[key] == pytest.approx(statistics.mean(summary[key] for summary in alone))
        assert row["bytes_sent"] == alone[0]["bytes_sent"] and row["options"] == alone[0]["options"]
    runs = {path.name for path in (tmp_path / "report/runs").iterdir()}
    assert runs == {f"{safe_name(label)}-seed{seed}" for label in labels for seed in (4, 5, 6)}


def test_compare_prints_a_table_of_80_columns_with_a_row_for_each_algorithm(command):
    outcome = command.well("compare", *SHORT, "-a", "sync,d-asgd,c-asgd", "--seeds", 1)
    lines = outcome.out.splitlines()
    assert "digits, paper-1, delay 5, 1 seed" in lines[0]
    assert [line.split()[0] for line in lines if line.split() and line.split()[0].endswith(("sync", "asgd"))] == [
        *("sync", "d-asgd", "c-asgd")
    ]
    assert max(map(len, lines[:-1])) <= 80 and lines[-1].endswith("are in reports/compare")
    assert command.well("compare", *SHORT, "-a", "sync", "--seeds", 1).out.endswith("are in reports/compare-2\n")


def test_one_run_that_diverges_is_marked_and_the_others_go_on(command):
    arguments = ("compare", "--epochs", 4, "--delay", 5, "--no-plots", "-a", "p-asgd,sync", "--seeds", 2, "--lr", 30)
    outcome = command(*arguments, "--out", "report", "--json")
    worse, better = outcome.document["results"]
    assert outcome.status == 0 and (worse["diverged"], better["diverged"]) == (2, 0)
    lines = outcome.err.splitlines()
    assert [line.partition(": the loss")[0] for line in lines] == ["gossamer: p-asgd seed 0", "gossamer: p-asgd seed 1"]
    assert better["accuracy_per_seed"] == [
        gm.simulate(algorithm="sync", delay=5, epochs=4, lr=30, seed=seed).summary["accuracy_mean"] for seed in (0, 1)
    ]
    assert "(2 diverged)" in command(*arguments, "--out", "again").out.replace("\n", "")


def test_options_reach_the_algorithms_that_have_them_and_text_wins():
    entries = plan(["sync", "p-asgd", "pc-asgd/lam=3", "pc-asgd/theta=pv"], {"lam": "2", "lr": "0.3", "theta": "0.7"})
    rules = [make_training(entry.settings).algorithm for entry in entries]
    assert [getattr(rule, "lam", None) for rule in rules] == [None, 2.0, 3.0, 2.0]
    assert [getattr(rule, "theta", None) for rule in rules] == [None, None, 0.7, "pv"]
    assert {entry.settings.lr for entry in entries} == {0.3}


def test_a_preset_yields_to_what_is_given_and_to_the_text():
    entries = plan(["pc-asgd", "pc-asgd/theta=0.2"], {"batch": "64"}, "paper")
    assert [entry.settings.options["theta"] for entry in entries] == ["pv", "0.2"]
    assert [entry.settings.batch for entry in entries] == [64, 64] and entries[0].settings.mixing == "uniform"


def test_commas_inside_an_option_do_not_split_it():
    text = "sync, pc-asgd/theta=linear:0,0.5,100,pc-asgd/theta=piecewise:0=0.3,500=0.7,dm-asgd/gain=0.1"
    assert split_algorithms(text) == [
        *("sync", "pc-asgd/theta=linear:0,0.5,100", "pc-asgd/theta=piecewise:0=0.3,500=0.7", "dm-asgd/gain=0.1")
    ]


def test_the_family_and_the_demo_are_valid():
    entries = plan(split_algorithms(FAMILY), dict(DEMO))
    assert {entry.settings.algorithm for entry in entries} == {
        *("sync", "d-asgd", "p-asgd", "c-asgd", "pc-asgd", "dm-asgd")
    }
    for entry in entries:
        assert make_training(entry.settings).steps == 1200
        algorithm_class(parse_algorithm(entry.label)[0])


def test_compare_reads_a_file_and_flags_win_over_it(command, tmp_path):
    (tmp_path / "run.toml").write_text('lr = 0.3\nepochs = 2\ndelay = "5"\nalgorithm = "p-asgd"\nmodel = "linear"\n')
    arguments = ("compare", "run.toml", "-a", "d-asgd", "--seeds", 1, "--no-plots", "--json")
    row = command.well(*arguments, "--lr", 0.2).document["results"][0]
    alone = gm.simulate(algorithm="d-asgd", delay=5, epochs=2, model="linear", lr=0.2)
    assert row["accuracy_per_seed"] == [alone.summary["accuracy_mean"]]


def test_compare_reads_the_options_in_a_file(command, tmp_path):
    (tmp_path / "run.toml").write_text('epochs = 2\ndelay = "5"\n[options]\ntheta = 0.7\n')
    outcome = command.well("compare", "run.toml", "-a", "pc-asgd", "--seeds", 1, "--no-plots", "--json")
    assert outcome.document["results"][0]["options"]["theta"] == 0.7


def test_a_name_is_never_used_twice(tmp_path):
    for expected in ("run", "run-2", "run-3"):
        path = unused_folder(tmp_path, "run")
        assert path == tmp_path / expected
        path.mkdir()
    assert safe_name("pc-asgd/theta=linear:0,0.5") == "pc-asgd-theta=linear-0-0.5"


def test_the_markdown_table_has_every_algorithm_the_best_first(command):
    outcome = command.well("compare", *SHORT, "-a", "c-asgd,sync", "--seeds", 2, "--no-plots", "--json")
    text = Path("reports/compare/results.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    results = sorted(outcome.document["results"], key=lambda row: -row["accuracy_mean"])
    assert [row[0] for row in rows[1:]] == [row["label"] for row in results]
    best = results[0]
    assert rows[1][1:4] == [
        f"{best['lr']:g}",
        f"{100 * best['accuracy_mean']:.1f} ± {100 * best['accuracy_std']:.1f}",
        f"{100 * best['accuracy_average_model']:.1f}",
    ]
    assert all(len(row) == len(rows[0]) == 7 for row in rows)


def test_an_interrupted_comparison_goes_on(command, monkeypatch):
    compare = ("compare", *SHORT, "-a", "sync,c-asgd", "--seeds", 2, "--json")
    whole = command.well(*compare, "--out", "whole").document
    begun = []

    def run(self, *arguments, **values):
        begun.append(self.settings.seed)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return finish(self, *arguments, **values)

    finish = Training.run
    monkeypatch.setattr(Training, "run", run)
    stopped = command(*compare, "--out", "parts")
    assert stopped.status == 130 and "to continue, run the same command with --out parts" in stopped.err
    parts = command.well(*compare, "--out", "parts").document
    assert len(begun) == 3 + 2  # two were kept
    varying = {"seconds": None}
    assert [{**row, **varying} for row in parts["results"]] == [{**row, **varying} for row in whole["results"]]
    assert "already exists" in command.refused(*compare, "--out", "parts")


def test_what_is_not_finite_is_a_dash_in_the_table():
    row = {"label": "p-asgd", "lr": 1.0, "accuracy_mean": 0.1, "accuracy_std": 0.0, "accuracy_average_model": 0.1}
    row |= {"loss_mean": math.nan, "consensus_distance": None, "bytes_sent": 0, "diverged": 1, "seeds": [0, 1]}
    document = {"task": "t", "model": "m", "network": "n", "delay": 1, "epochs": 1, "seeds": 2, "results": [row]}
    assert "| p-asgd | 1 | 10.0 ± 0.0 (1 of 2 diverged) | 10.0 | - | - | 0 |" in to_markdown(document)
