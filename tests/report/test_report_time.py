"""What a report makes of runs on a testbed: simulated seconds as an axis, the target, and what agents did."""

import json
import math
import shutil
from pathlib import Path

import pytest
from matplotlib.collections import LineCollection, PolyCollection

from gossamer.errors import UserError
from gossamer.report.agent_spells import AgentTimeline, MessageFlight, Spell, as_columns, read_timeline
from gossamer.report.page_model import make_model
from gossamer.report.plots import draw_curves, draw_quantities
from gossamer.report.read_runs import read_run
from gossamer.report.runs import fold
from gossamer.report.spells_picture import draw_timeline
from gossamer.run.metric_rows import LabelledRun
from reports import chart, model_of, rows_of, write_rows
from runs import begin
from timed_runs import EVERY, SECONDS, make_timed_run

OF_TIME = ["sim_seconds", "goodput", "seconds_to_target", "steps_to_target", "megabytes_to_target"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("timed")
    make_timed_run(folder / "runs/sync-0")
    make_timed_run(folder / "runs/late-0", "d-asgd", target="0.999")
    return folder


@pytest.fixture
def timed(made, tmp_path):
    return shutil.copytree(made / "runs", tmp_path / "timed")


# Axes.


def test_simulated_seconds_are_the_axis_where_all_runs_have_them(timed, compared):
    model = model_of(timed)
    assert model["axis"] == "sim_seconds" and "sim_seconds" in [axis["key"] for axis in model["axes"]]
    marks = [EVERY * k for k in range(int(SECONDS / EVERY) + 1)]
    assert all(curve["x"]["sim_seconds"] == marks for curve in chart(model, "loss")["curves"])
    mixed = model_of(timed, compared / "runs/dm-0")
    (why,) = [axis["why"] for axis in mixed["axes"] if axis["key"] == "sim_seconds"]
    assert mixed["axis"] == "iterations" and why.startswith("dm-0 was trained without a testbed")


def test_runs_in_steps_look_as_they_did(compared):
    model = model_of(compared)
    assert model["axis"] == "iterations"
    assert [axis["key"] for axis in model["axes"]] == ["iterations", "epochs", "seconds", "megabytes"]
    assert not {column["key"] for column in model["columns"]} & set(OF_TIME)
    assert all(run["timeline"] is None and "waiting" not in run["agents"] for run in model["runs"])


def row(step, seconds, value):
    return {"step": step, "sim_seconds": seconds, "loss": [value], "accuracy": [value]}


def test_seeds_meet_at_the_clock_they_share():
    by_time = [LabelledRun("a", 0, {}, [row(0, 0.0, 4.0), row(3, 1.0, 2.0), row(7, 2.0, 1.0)])]
    by_time += [LabelledRun("a", 1, {}, [row(0, 0.0, 2.0), row(0, 1.0, 4.0), row(5, 2.0, 3.0)])]
    (curve,) = fold(by_time, "loss")
    assert curve.marks.tolist() == [0.0, 1.0, 2.0] and curve.mean.tolist() == [3.0, 3.0, 2.0]
    by_steps = [LabelledRun("a", k, {}, [row(0, 0.0, 4.0), row(3, 1.0 + k, 2.0)]) for k in range(2)]
    (curve,) = fold(by_steps, "loss")
    assert curve.marks.tolist() == [0.0, 3.0] and curve.num_seeds == 2
    (line,) = draw_curves(by_steps, "loss").axes[0].lines
    assert list(line.get_xdata()) == [0.0, 1.5]  # the mean of 1 and 2 seconds


def test_two_evaluations_of_a_step_are_two(timed):
    rows = rows_of(timed / "sync-0")
    steps = [row["step"] for row in rows]
    assert len(set(steps)) < len(steps)  # the slowest iterations take longer than the time between two evaluations
    assert [row["sim_seconds"] for row in read_run(timed / "sync-0").rows] == [row["sim_seconds"] for row in rows]


def test_a_clock_that_is_no_number_is_refused(timed):
    rows = rows_of(timed / "sync-0")
    rows[2]["sim_seconds"] = "late"
    write_rows(timed / "sync-0", rows)
    with pytest.raises(UserError, match=r"metrics.jsonl is damaged in line 3"):
        read_run(timed / "sync-0")


def test_plots_are_over_simulated_seconds_unless_told_otherwise():
    runs = [LabelledRun("a", 0, {}, [row(0, 0.0, 0.1), row(2, 5.0, 0.2), row(4, 6.0, 0.4)])]
    told = {axis: draw_curves(runs, "accuracy", axis=axis).axes[0] for axis in (None, "sim_seconds", "iterations")}
    places = {axis: list(axes.lines[0].get_xdata()) for axis, axes in told.items()}
    assert places == {None: [0, 5, 6], "sim_seconds": [0, 5, 6], "iterations": [0, 2, 4]}
    assert told[None].get_xlabel() == "simulated seconds" and told["iterations"].get_xlabel() == "iterations"
    assert {axes.get_xlabel() for axes in draw_quantities(runs).axes} == {"simulated seconds"}
    in_steps = LabelledRun("b", 0, {}, [{"step": 0, "accuracy": [0.1]}])
    assert draw_curves([*runs, in_steps], "accuracy").axes[0].get_xlabel() == "iterations"
    with pytest.raises(UserError, match="run 'b' was trained without a testbed"):
        draw_curves([*runs, in_steps], "accuracy", axis="sim_seconds")
    with pytest.raises(UserError, match="unknown axis 'hours'"):
        draw_quantities(runs, axis="hours")


# The table.


def test_the_table_says_what_the_target_took(timed):
    model = model_of(timed)
    assert [column["key"] for column in model["columns"]][5:10] == OF_TIME
    late, sync = model["runs"]
    first = next(row for row in rows_of(timed / "sync-0") if math.fsum(row["accuracy"]) / 3 >= 0.18)
    assert [sync[key] for key in OF_TIME[2:4]] == [first["sim_seconds"], first["step"]]
    assert sync["megabytes_to_target"] == pytest.approx(sum(first["bytes_sent"]) / 1e6, rel=1e-5)
    assert [late[key] for key in OF_TIME[2:]] == ["not reached"] * 3
    # The slow agent never waits. Of each 2 seconds, the others compute 1; at first they wait half a second longer.
    assert sync["goodput"] == pytest.approx(100 * (1 + 2 * 6 / 12) / 3, rel=1e-4)
    assert (late["goodput"], sync["sim_seconds"]) == (100.0, SECONDS)
    facts = {fact["name"]: fact["value"] for fact in model["header"]["facts"]}
    assert facts["Testbed"] == "bed.toml" and facts["Target"] == "accuracy 0.999, accuracy 0.18"


def test_a_run_under_way_has_the_same_cells_from_its_rows(timed):
    path = timed / "sync-0"
    (ended,) = model_of(path)["runs"]
    (path / "summary.json").unlink()
    (under_way,) = model_of(path)["runs"]
    assert {key: under_way[key] for key in OF_TIME} == {key: ended[key] for key in OF_TIME}


# What agents did.


def test_the_timeline_is_that_of_the_events(timed):
    (run,) = model_of(timed / "sync-0")["runs"]
    spells, messages = run["timeline"]["spells"], run["timeline"]["messages"]
    of_first = {kind: [k for k, agent in enumerate(spells[kind]["agent"]) if agent == 0] for kind in spells}
    spans = {kind: [(spells[kind]["begin"][k], spells[kind]["end"][k]) for k in of_first[kind]] for kind in spells}
    # Agent 1 takes 2 seconds, and its messages half a second: then agent 0 begins again, and computes for 1.
    assert spans["computing"][:3] == [(0.0, 1.0), (2.5, 3.5), (4.5, 5.5)]
    assert spans["waiting"][:2] == [(1.0, 2.5), (3.5, 4.5)] and spans["down"] == []
    assert set(spells["waiting"]["agent"]) == {0, 2}
    sent = list(zip(*(messages[key] for key in ("from", "to", "begin", "end")), strict=True))
    assert {(1, 0, 2.0, 2.5), (1, 2, 2.0, 2.5), (0, 1, 1.0, 1.5)} <= set(sent)
    assert run["agents"]["waiting"][1][-1] == 0 < run["agents"]["waiting"][0][-1] and "down" not in run["agents"]


def alternating(agents, iterations):
    """Agents that compute for a second each, and tell the next one."""
    spells = [Spell("computing", agent, float(k), k + 1.0) for k in range(iterations) for agent in range(agents)]
    flights = [
        MessageFlight(agent, (agent + 1) % agents, k + 1.0, k + 1.5)
        for k in range(iterations)
        for agent in range(agents)
    ]
    return AgentTimeline(spells, flights)


def test_a_long_timeline_is_cut_in_time():
    whole = alternating(4, 20)
    assert whole.window == 8.0 and whole.end == 20.0  # eight iterations of each agent
    assert alternating(4, 3).window == 3.0
    shown = as_columns(whole, 50)
    begins = [*shown["spells"]["computing"]["begin"], *shown["messages"]["begin"]]
    last = max(begins)
    every = [spell.begin for spell in whole.spells] + [flight.begin for flight in whole.flights]
    assert len(begins) <= 50 and sorted(begins) == sorted(begin for begin in every if begin <= last)
    assert as_columns(AgentTimeline([], []), 50)["messages_until"] is None


def test_the_picture_has_a_bar_for_each_spell_and_a_line_for_each_message():
    figure = draw_timeline(alternating(3, 4), "three agents")
    (bars,) = [each for each in figure.axes[0].collections if isinstance(each, PolyCollection)]
    (lines,) = [each for each in figure.axes[0].collections if isinstance(each, LineCollection)]
    assert len(bars.get_paths()) == 12
    # One that is sent at the end is not in the window.
    segments = [line.tolist() for line in lines.get_segments()]
    assert len(segments) == 9 and [[1.0, 0.0], [1.5, 1.0]] in segments
    assert figure.legends[0].get_texts()[0].get_text() == "computing"


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("computing,0,,0.0", 2),
        ("computing,3,,0.0,1.0", 2),
        ("computing,0,,2.0,1.0", 2),
        ("sleeping,0,,0.0,1.0", 2),
        ("message,0,7,0.0,1.0", 2),
        ("message,0,,0.0,1.0", 2),
        ("computing,0,,0.0,nan", 2),
    ],
)
def test_a_damaged_timeline_is_refused_in_a_line_that_names_it(timed, line, number):
    path = timed / "sync-0/timeline.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], line, *lines[1:]]) + "\n")
    with pytest.raises(UserError, match=rf"sync-0' cannot be shown: timeline.csv is damaged in line {number}"):
        read_run(timed / "sync-0")
    path.write_text("what,who\n")
    with pytest.raises(UserError, match="in line 1"):
        read_timeline(timed / "sync-0", 3)


def test_figures_have_the_timeline_and_curves_over_seconds(timed, command):
    command.well("report", timed / "sync-0", "--figures", "figures")
    names = {path.name for path in Path("figures").iterdir()}
    expected = {"timeline", "accuracy", "accuracy-seconds", "loss-seconds", "bytes-sent-seconds"}
    assert {f"{name}.{kind}" for name in expected for kind in ("png", "svg")} <= names


def test_seeds_are_one_setting(timed):
    shutil.copytree(timed / "late-0", timed / "late-1")
    config = timed / "late-1/config.toml"
    config.write_text(config.read_text().replace("seed = 0", "seed = 1"))
    model = make_model([read_run(timed / name) for name in ("late-0", "late-1")])
    assert [setting["seeds"] for setting in model["settings"]] == [[0, 1]]
    assert model["header"]["facts"][1]["value"] == "complete:3: 3 agents"


def test_an_agent_that_is_down_is_no_dead_one(tmp_path):
    bed = "lan:3;schedule=list:" + str(tmp_path / "downs.csv")
    (tmp_path / "downs.csv").write_text("time,agent,up\n1.0,1,down\n")
    values = {"testbed": bed, "network": "complete:3", "model": "linear", "algorithm": "d-asgd", "seconds": 3.0}
    run, folder = begin(tmp_path / "run", **values, delay=None, eval_every=0)
    run.run(folder)
    status = json.loads((tmp_path / "run/status.json").read_text())
    assert [agent["state"] for agent in status["agents"]] == ["alive", "down", "alive"]
    assert (status["sim_seconds"], status["sim_end"], status["steps"]) == (3.0, 3.0, None)
    (shown,) = model_of(tmp_path / "run")["runs"]
    assert [seconds[-1] for seconds in shown["agents"]["down"]] == [0.0, 2.0, 0.0]
