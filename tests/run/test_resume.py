import json

import networkx as nx
import numpy as np
import pytest
import torch

import gossamer as gm
from command import files_under
from gossamer.engine import make_training
from gossamer.run.folder import RunFolder
from gossamer.state.history import SlidingDrift
from runs import Crash, begin, crashing_at, outcome, take_up, without_seconds

# Every algorithm, every kind of delay, every part of the state: momentum, sliding sums, many ages, chance.
CASES = {
    "sync": {"algorithm": "sync", "momentum": 0.9},
    "d-asgd, gilbert and loss": {"algorithm": "d-asgd", "delay": "gilbert:0.2,0.3,6", "loss": 0.2},
    "d-asgd, late inside clusters": {"algorithm": "d-asgd", "reliable_delay": 1},
    "p-asgd": {"algorithm": "p-asgd", "momentum": 0.9, "nesterov": True},
    "p-asgd, uniform": {"algorithm": "p-asgd", "delay": "uniform:1,8"},
    "c-asgd": {"algorithm": "c-asgd", "weight_decay": 1e-3},
    "c-asgd, late inside clusters": {"algorithm": "c-asgd", "reliable_delay": 2},
    "pc-asgd": {"algorithm": "pc-asgd"},
    "pc-asgd, float64": {"algorithm": "pc-asgd", "dtype": "float64", "momentum": 0.5},
    "pc-asgd, pv, fresh batch": {"algorithm": "pc-asgd", "theta": "pv", "test_batch": "fresh", "momentum": 0.9},
    "pc-asgd, bernoulli, uniform, loss": {
        "algorithm": "pc-asgd",
        "theta": "bernoulli:0.5",
        "delay": "uniform:1,8",
        "loss": 0.3,
    },
    "pc-asgd, gilbert": {"algorithm": "pc-asgd", "theta": "uniform", "delay": "gilbert:0.2,0.3,6,1", "loss": 0.1},
    "pc-asgd, geometric, ring": {"algorithm": "pc-asgd", "delay": "geometric:0.5", "network": "ring:8"},
    "pc-asgd, trace": {"algorithm": "pc-asgd", "theta": "pv", "delay": "trace:trace.csv", "momentum": 0.9},
    "pc-asgd, matrix": {"algorithm": "pc-asgd", "delay": "matrix:matrix.csv"},
    "pc-asgd, delay in epochs": {"algorithm": "pc-asgd", "delay": "1", "delay_unit": "epoch"},
    "dm-asgd": {"algorithm": "dm-asgd", "schedule": "cosine", "warmup": 0.5},
    "dm-asgd, trace and loss": {"algorithm": "dm-asgd", "delay": "trace:trace.csv", "loss": 0.2},
    "pc-asgd, links by round": {"algorithm": "pc-asgd", "delay": "uniform:0,4", "graph_schedule": "edges:edges.csv"},
    "d-asgd, matching and absences": {
        "algorithm": "d-asgd",
        "delay": "3",
        "momentum": 0.9,
        "graph_schedule": "matching+away.csv",
    },
    "dm-asgd, startup full": {"algorithm": "dm-asgd", "startup": "full", "delay": "uniform:2,6"},
}

# Before the first step, before the first late message, on and between evaluations, past two rebuilds, near the end.
STOPS = (0, 3, 5, 16, 17, 35)


@pytest.fixture
def folder(folder):
    """The present folder, with a trace, a matrix and schedules."""
    rng = np.random.default_rng(0)
    pairs = [(i, k) for i in range(8) for k in range(8) if i != k]
    rows = [f"{step},{i},{k},{rng.integers(0, 7)}" for step in range(0, 20, 4) for i, k in pairs]
    (folder / "trace.csv").write_text("\n".join(["step,from,to,delay", *rows]) + "\n")
    np.savetxt(folder / "matrix.csv", rng.integers(0, 7, (8, 8)), fmt="%d", delimiter=",")
    used = [f"{t},{i},{k}" for t in range(5) for i, k in pairs if i < k and (i + k + t) % 3]
    (folder / "edges.csv").write_text("\n".join(["round,from,to", *used]) + "\n")
    (folder / "away.csv").write_text("time,agent,up\n4,1,0\n15.5,1,1\n18,2-3,0\n")
    return folder


def run_in_pieces(path, stops, **values):
    training, folder = begin(path, **values)
    for stop in stops:
        result = training.run(folder, stop=lambda training=training, stop=stop: training.simulation.t >= stop)
        assert (result.summary["status"], result.summary["iterations"]) == ("interrupted", stop)
        training, folder = take_up(path)
    return training.run(folder)


@pytest.mark.parametrize("case", CASES)
def test_a_run_stopped_anywhere_and_resumed_ends_byte_for_byte_the_same(folder, monkeypatch, case):
    monkeypatch.setattr(SlidingDrift, "REBUILD", 6)
    training, run_folder = begin(folder / "whole", **CASES[case])
    whole = training.run(run_folder)
    pieces = run_in_pieces(folder / "pieces", STOPS, **CASES[case])
    assert outcome(folder / "pieces") == outcome(folder / "whole")
    varying = ("seconds", "run_dir", "network", "delay")  # a copied file has another name
    assert {**pieces.summary, **dict.fromkeys(varying)} == {**whole.summary, **dict.fromkeys(varying)}
    assert torch.equal(pieces.x, whole.x) and without_seconds(pieces.history) == without_seconds(whole.history)
    assert not list(folder.rglob("*tmp*"))


def test_the_sliding_sums_are_in_the_checkpoint_and_matter(folder, monkeypatch):
    """A resumed run that summed anew would round otherwise: the case above can go red."""
    run_in_pieces(folder / "sums", [9], algorithm="pc-asgd")
    training, run_folder = begin(folder / "cut", algorithm="pc-asgd")
    training.run(run_folder, stop=lambda: training.simulation.t >= 9)
    state = run_folder.load()
    assert {"simulation.mailbox.drift.sum.5", "simulation.mailbox.drift.position"} <= set(state)
    state["simulation.mailbox.drift.sum.5"] += 1e-3
    run_folder.save(state)
    resumed, run_folder = take_up(folder / "cut")
    resumed.run(run_folder)
    assert outcome(folder / "cut") != outcome(folder / "sums")


def test_seconds_add_up_over_the_parts_of_a_run(folder):
    training, run_folder = begin(folder / "run")
    first = training.run(run_folder, stop=lambda: training.simulation.t >= 20).summary["seconds"]
    resumed, run_folder = take_up(folder / "run")
    assert resumed.run(run_folder).summary["seconds"] > first > 0


@pytest.mark.parametrize("crash_at", [13, 24, 30])
def test_after_a_crash_the_rows_behind_the_last_checkpoint_are_dropped_and_made_again(folder, crash_at):
    values = {"algorithm": "pc-asgd", "checkpoint_every": 1, "eval_every": 1}
    training, run_folder = begin(folder / "whole", **values)
    training.run(run_folder)

    training, run_folder = begin(folder / "crashed", **values)
    with pytest.raises(Crash):
        training.run(run_folder, on_step=crashing_at(crash_at))
    resumed, run_folder = take_up(folder / "crashed")
    assert resumed.simulation.t == crash_at // 12 * 12
    resumed.run(run_folder)
    assert outcome(folder / "crashed") == outcome(folder / "whole")


def test_resuming_a_finished_run_changes_nothing(folder, command):
    command.well("train", "--epochs", 2, "--delay", 5, "--out", "run")
    before = files_under(folder)
    resumed = command("train", "--resume", "run", "--json")
    assert files_under(folder) == before
    assert resumed.err == "gossamer: the run in run has already finished; this is its summary\n"
    kept = json.loads((folder / "run/summary.json").read_text())
    assert resumed.status == 0 and {**resumed.document, "seconds": 0} == {**kept, "seconds": 0}


def test_a_run_killed_before_its_last_summary_gets_one(folder, command):
    command.well("train", "--epochs", 2, "--delay", 5, "--out", "run")
    before = outcome(folder / "run")
    (folder / "run/summary.json").unlink()
    assert command.well("train", "--resume", "run", "--json").document["status"] == "finished"
    assert (folder / "run/summary.json").exists() and outcome(folder / "run") == before


def test_resuming_a_diverged_run_changes_nothing(folder, command):
    assert command("train", "--epochs", 2, "--delay", 5, "--lr", 1e6, "--out", "run").status == 1
    before = outcome(folder / "run")
    assert command("train", "--resume", "run").status == 1
    assert outcome(folder / "run") == before


@pytest.mark.parametrize("case", [case for case in CASES if "," in case])
def test_the_config_of_a_run_repeats_it(folder, monkeypatch, case):
    monkeypatch.setattr(SlidingDrift, "REBUILD", 6)
    training, run_folder = begin(folder / "first", **CASES[case])
    training.run(run_folder)
    for name in ("trace.csv", "matrix.csv", "edges.csv", "away.csv"):
        (folder / name).unlink()
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    settings = RunFolder.open(folder / "first")[1]
    again = make_training(settings)
    again.run(RunFolder.create(elsewhere / "again", again.settings, again.network))
    assert outcome(elsewhere / "again") == outcome(folder / "first")


def path_graph():
    return nx.relabel_nodes(nx.path_graph(5), dict(enumerate("abcde")))


NETWORKS = {
    "graph": lambda: gm.network(path_graph(), 4),
    "graph with clusters": lambda: gm.network(path_graph(), 4, clusters="2,3"),
    "graph with a matrix": lambda: gm.network(path_graph(), np.triu(np.full((5, 5), 3))),
    "matrix on clusters": lambda: gm.network("clusters:2,3", np.arange(25).reshape(5, 5) % 6, clusters="1,4"),
    "trace of rows": lambda: gm.network("ring:4", gm_trace()),
    "trace on a graph": lambda: gm.network(nx.cycle_graph(4), gm_trace(), loss=0.2, clusters="2,2"),
    "one cluster": lambda: gm.network("ring:4", 3, clusters=[4]),
    "reliable but lossy": lambda: gm.network("random:6,p=0.7,seed=1", 3, loss=0.3, mixing="uniform", lazy=True),
}


def gm_trace():
    from gossamer.network import Trace

    return Trace([(0, 0, 1, 2), (3, 0, 1, 5), (2, 1, 2, 1)])


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_config_repeats_a_run_on_a_network_given_as_an_object(folder, command, monkeypatch, kind):
    gm.simulate(network=NETWORKS[kind](), algorithm="pc-asgd", epochs=1, model="linear", out="first")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    command.well("train", folder / "first/config.toml", "--out", "again")
    assert outcome(elsewhere / "again") == outcome(folder / "first")


def test_the_config_repeats_a_run_on_a_network_with_discovered_clusters(folder, command):
    found = gm.network("complete:4", 3).with_clusters(((0, 1), (2, 3)))
    gm.simulate(network=found, algorithm="d-asgd", epochs=1, out="first")
    command.well("train", "first/config.toml", "--out", "again")
    assert outcome(folder / "again") == outcome(folder / "first")


def test_files_of_the_same_name_in_the_present_folder_do_not_disturb_a_run(folder, command):
    (folder / "net.json").write_text(json.dumps({"agents": 4, "links": [[0, 1], [1, 2], [2, 3]]}))
    (folder / "late.csv").write_text("step,from,to,delay\n0,0,1,3\n")
    arguments = ("--epochs", 1, "--network", "file:net.json", "--delay", "trace:late.csv")
    command.well("train", *arguments, "--out", "first")
    (folder / "network.json").write_text(json.dumps({"agents": 2, "links": [[0, 1]]}))
    (folder / "trace.csv").write_text("step,from,to,delay\n0,1,0,1\n")
    command.well("train", "first/config.toml", "--out", "again")
    assert outcome(folder / "again") == outcome(folder / "first")
    assert command("train", "--resume", "first").status == 0
    assert outcome(folder / "again") == outcome(folder / "first")


def test_a_run_folder_can_be_moved(folder, command):
    (folder / "net.json").write_text(json.dumps({"agents": 3, "links": [[0, 1], [1, 2]], "delay": [[3] * 3] * 3}))
    training, _ = begin(folder / "here", network="file:net.json", delay=None, clusters=None)
    training.run(RunFolder(folder / "here"), stop=lambda: training.simulation.t >= 10)
    (folder / "net.json").unlink()
    (folder / "here").rename(folder / "there")
    summary = command.well("train", "--resume", "there", "--json").document
    assert (summary["status"], summary["agents"], summary["run_dir"]) == ("finished", 3, "there")
