"""What a report makes of runs: curves, drawings, tables and commands, on the page and as figures."""

import json
import shlex
import statistics
from pathlib import Path

import pytest
import torch

import gossamer as gm
from command import files_under
from gossamer.report.print_figures import AGE_COLOURS
from reports import chart, model_of, rows_of, write_rows


def test_seeds_are_folded_into_mean_and_range(compared):
    model = model_of(compared)
    assert [(setting["label"], setting["seeds"]) for setting in model["settings"]] == [
        *(("dm-asgd", [0]), ("pc-asgd", [0, 1, 2])),
    ]
    alone, folded = chart(model, "accuracy")["curves"]
    seeds = [rows_of(compared / f"runs/pc-{seed}") for seed in (0, 1, 2)]
    means = [[100 * statistics.fmean(rows[k]["accuracy"]) for rows in seeds] for k in range(len(seeds[0]))]
    assert folded["mean"] == pytest.approx([statistics.fmean(each) for each in means], rel=1e-5)
    assert folded["low"] == pytest.approx([min(each) for each in means], rel=1e-5)
    assert folded["high"] == pytest.approx([max(each) for each in means], rel=1e-5)
    assert alone["low"] is None and alone["high"] is None
    steps = [row["step"] for row in seeds[0]]
    assert folded["x"]["iterations"] == steps
    assert folded["x"]["epochs"] == pytest.approx([step / 12 for step in steps], rel=1e-5)
    sent = [sum(row["bytes_sent"]) / 1e6 for row in seeds[0]]
    assert folded["x"]["megabytes"] == pytest.approx(sent, rel=1e-5)
    seconds = [statistics.fmean(rows[k]["seconds"] for rows in seeds) for k in range(len(steps))]
    assert folded["x"]["seconds"] == pytest.approx(seconds, rel=1e-5)
    assert all(axis["why"] is None for axis in model["axes"])


def test_the_predict_share_is_that_of_each_cluster(compared):
    path = compared / "runs/pc-0"
    shares = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, None]
    write_rows(path, [{**row, "predict": shares} for row in rows_of(path)])
    curves = chart(model_of(path), "predict")["curves"]
    assert [curve["part"] for curve in curves] == ["cluster 0 (3 agents)", "cluster 1 (5 agents)"]
    assert [curve["mean"][-1] for curve in curves] == pytest.approx([20.0, 55.0])


def test_ages_are_weighed_by_the_iterations_of_their_interval(compared):
    path = compared / "runs/pc-0"
    rows = rows_of(path)[:3]  # at 0, 5 and 10
    nothing = [[None] * 8 for _ in range(8)]
    first, second = [list(row) for row in nothing], [list(row) for row in nothing]
    first[0][3], second[0][3], second[1][4] = 2.0, 5.0, 7.0
    rows[2]["step"] = 15  # so that the second interval is twice as long
    write_rows(path, [row | {"ages": ages} for row, ages in zip(rows, (nothing, first, second), strict=True)])
    (run,) = model_of(path)["runs"]
    assert run["mean_ages"][0][3] == pytest.approx((5 * 2 + 10 * 5) / 15) and run["mean_ages"][1][4] == 7.0
    assert run["mean_ages"][2] == [None] * 8 and run["link_ages"] == second


def test_a_run_without_seconds_and_ages_takes_the_axis_away_and_says_why(compared):
    path = compared / "runs/pc-1"
    write_rows(path, [{k: v for k, v in row.items() if k not in ("seconds", "ages")} for row in rows_of(path)])
    model = model_of(compared)
    why = {axis["key"]: axis["why"] for axis in model["axes"]}
    assert why.pop("seconds").startswith("pc-1 ") and set(why.values()) == {None}
    (old,) = [run for run in model["runs"] if run["name"] == "pc-1"]
    assert old["mean_ages"] is old["link_ages"] is None and "train it again" in old["no_ages"]


def test_rows_of_processes_are_read_with_a_value_for_each_agent(compared):
    path = compared / "runs/pc-0"
    rows = rows_of(path)
    for row in rows:
        del row["consensus"]
        row |= {"message_age": [1.0, 3.0, None, *[2.0] * 5], "seconds": [float(row["step"])] * 8}
    write_rows(path, rows)
    (path / "runtime.json").write_text('{"engine": "processes", "compress": "bf16"}')
    model = model_of(path)
    assert chart(model, "message_age")["curves"][0]["mean"][-1] == 2.0
    assert chart(model, "consensus")["curves"] == [] and chart(model, "accuracy")["curves"][0]["x"]["seconds"][-1] == 36
    assert model["settings"][0]["command"].endswith("--engine processes --compress bf16")


def test_the_network_has_its_clusters_and_late_links(compared):
    (network,) = model_of(compared)["networks"]
    assert [len(members) for members in network["clusters"]] == [3, 5] and len(network["circles"]) == 2
    assert (network["num_links"], network["num_late"]) == (28, 15)
    for i, k, late, delay in network["links"]:
        assert late == (network["cluster_of"][i] != network["cluster_of"][k]) and delay == (5 if late else 0)


def test_differences_are_marked_and_only_what_tells_settings_apart_names_them(compared, command):
    command.well("train", "--model", "linear", "--epochs", 3, "--delay", 5, "--theta", "pv", "--out", "compared/pv")
    model = model_of(compared)
    assert [setting["label"] for setting in model["settings"]] == ["pc-asgd theta=pv", "dm-asgd", "pc-asgd theta=auto"]
    rows = {row["key"]: row for row in model["configuration"]}
    assert rows["lr"] == {"key": "lr", "values": ["0.1", "0.2", "0.1"], "differs": True}
    assert rows["seed"]["values"] == ["0", "0", "0, 1, 2"] and rows["theta"]["values"] == ["pv", "-", "auto"]
    assert not rows["network"]["differs"] and len(rows) > 40


def test_the_heading_says_what_ran_and_what_came_of_it(compared):
    header = model_of(compared)["header"]
    assert header["title"] == "dm-asgd, pc-asgd on paper-1, delay 5"
    facts = {fact["name"]: fact["value"] for fact in header["facts"]}
    assert facts["Delay"] == "5 steps" and facts["Runs"] == "4 runs, 3 seeds" and facts["Task"] == "digits, linear"
    end = 100 * statistics.fmean(rows_of(compared / "runs/dm-0")[-1]["accuracy"])
    (alone,) = [f["value"] for f in model_of(compared / "runs/dm-0")["header"]["facts"] if f["name"] == "Accuracy"]
    assert alone == f"{end:.1f} %"


def test_networks_from_files_are_told_apart_by_what_is_in_them(folder, command):
    for name, links in (("a", [[0, 1], [1, 2]]), ("b", [[0, 1], [0, 2]])):
        Path(f"{name}.json").write_text(json.dumps({"agents": 3, "links": links}))
        arguments = ("--model", "linear", "--epochs", 1, "--network", f"file:{name}.json", "--delay", 1)
        for seed in (0, 1):
            command.well("train", *arguments, "--seed", seed, "--algorithm", "d-asgd", "--out", f"runs/{name}{seed}")
    model = model_of(folder / "runs")
    assert [setting["runs"] for setting in model["settings"]] == [[0, 1], [2, 3]] and len(model["networks"]) == 2


def test_the_command_repeats_the_run(folder, command):
    arguments = ("--model", "linear", "--epochs", 2, "--delay", "uniform:1,3", "--lazy", "--theta", "pv", "--seed", 3)
    command.well("train", *arguments, "--clusters", "4,4", "--schedule", "step:0.5,0.75", "--out", "first")
    (setting,) = model_of(folder / "first")["settings"]
    program, *words = shlex.split(setting["command"])
    assert program == "gossamer"
    command.well(*words, "--out", "second")
    assert Path("first/config.toml").read_bytes() == Path("second/config.toml").read_bytes()
    assert [row["loss"] for row in rows_of(folder / "first")] == [row["loss"] for row in rows_of(folder / "second")]


def test_what_was_made_in_python_has_no_command_but_a_reason(folder):
    examples = gm.Examples(torch.eye(4).repeat(8, 1), torch.arange(32) % 4)
    task = gm.Task("mine", lambda: torch.nn.Linear(4, 4), examples, examples)
    gm.simulate(task, "ring:4", "d-asgd", delay=2, epochs=2, batch=4, out="task")
    gm.simulate("digits", "ring:4", "d-asgd", model="linear", delay=2, epochs=1, out="rule")
    config = Path("rule/config.toml")
    config.write_text(config.read_text().replace('algorithm = "d-asgd"', 'algorithm = "own-rule"'))
    model = model_of(folder / "task", folder / "rule")
    assert [setting["command"] for setting in model["settings"]] == [None, None]
    assert ["task 'mine'" in model["settings"][0]["note"], "'own-rule'" in model["settings"][1]["note"]] == [True, True]


def test_discovered_clusters_are_drawn(folder, command):
    command.well(
        *("train", "--network", "ring:6", "--delay", 2, "--epochs", 1, "--model", "linear", "--out", "run"),
        *("--algorithm", "d-asgd"),
    )
    summary = json.loads(Path("run/summary.json").read_text())
    (network,) = model_of(folder / "run")["networks"]
    assert network["clusters"] == summary["clusters"]


# Figures for papers.


def test_every_chart_is_written_as_png_and_svg(compared, command):
    out = command.well("report", "compared", "--figures", "figures").out
    names = {"accuracy", "loss", "consensus", "predict", "message-age", "bytes-sent", "network"}
    names |= {"ages-dm-asgd", "ages-pc-asgd"}
    assert {path.name for path in Path("figures").iterdir()} == {
        f"{n}.{kind}" for n in names for kind in ("png", "svg")
    }
    assert "9 figures, each as PNG and SVG, in figures" in out
    for path in Path("figures").iterdir():
        start = b"\x89PNG" if path.suffix == ".png" else b"<?xml"
        assert path.read_bytes().startswith(start) and path.stat().st_size > 5_000
    before = files_under(Path("figures"))
    command.well("report", "compared", "--figures", "figures")
    assert files_under(Path("figures")) == before  # the same runs, the same bytes


def test_a_picture_of_the_users_own_is_left_alone(compared, command):
    Path("figures").mkdir()
    Path("figures/loss.svg").write_text("<svg/>")
    before = files_under(compared.parent)
    assert "loss.svg' exists and is not a figure" in command.refused("report", "compared", "--figures", "figures")
    assert "is a file" in command.refused("report", "compared", "--figures", "figures/loss.svg")
    assert files_under(compared.parent) == before


def test_older_is_darker_in_black_and_white():
    greys = [0.3 * r + 0.59 * g + 0.11 * b for r, g, b, _ in AGE_COLOURS([k / 20 for k in range(21)])]
    assert greys == sorted(greys, reverse=True) and greys[0] - greys[-1] > 0.6


def test_a_run_that_diverged_is_shown_up_to_there(folder, command):
    command("train", "--algorithm", "p-asgd", "--lr", 30, "--delay", 5, "--epochs", 4, "--out", "run")
    model = model_of(folder / "run")
    (run,) = model["runs"]
    assert "is inf at step" in run["status"] or "is nan at step" in run["status"]
    assert not run["orderly"] and json.dumps(model, allow_nan=False)
    (curve,) = chart(model, "accuracy")["curves"]
    assert [end["x"]["iterations"] for end in curve["ends"]] == [curve["x"]["iterations"][-1]]


def test_long_runs_and_large_networks_are_thinned_but_keep_their_end(folder, command):
    command.well(
        *("train", "--network", "ring:200", "--algorithm", "d-asgd", "--delay", 1, "--model", "linear"),
        *("--epochs", 2, "--batch", 9, "--task", "synthetic:classes=2,features=2,examples=1800", "--out", "run"),
    )
    last = rows_of(folder / "run")[-1]
    rows = [{**last, "step": step, "epoch": step} for step in range(301)]
    write_rows(folder / "run", rows)
    model = model_of(folder / "run")
    (run,) = model["runs"]
    assert 150 <= len(run["places"]["iterations"]) <= 201
    assert run["places"]["iterations"][-1] == 300 == chart(model, "loss")["curves"][0]["x"]["iterations"][-1]
    assert len(run["agents"]["loss"]) == 200 and "more than 128 agents" in run["no_ages"]
    assert chart(model, "predict")["curves"] == [] and set(model["networks"][0]["cluster_of"]) == {0}
