import itertools
import json
import math

import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn

import gossamer as gm
from gossamer.algorithms import algorithm_names, registry
from gossamer.engine import make_training
from gossamer.run.settings import make_settings
from runs import SHORT, timeless, training, without_seconds


def arrays(path):
    with np.load(path) as archive:
        return {name: archive[name].tobytes() for name in archive.files}


# The public API.


@pytest.mark.parametrize(
    ("spec", "agents"),
    [
        ("clusters:3,5", 8),
        ("ring:8", 8),
        ("torus:4x4", 16),
        ("exponential:16", 16),
        ("random:20,p=0.3,seed=1", 20),
        ("regular:12,k=3", 12),
        ("paper-1", 8),
        ("file:net.json", 3),
    ],
)
def test_every_documented_network_trains(spec, agents, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.json").write_text('{"agents": 3, "links": [[0, 1], [1, 2]]}')
    net = gm.network(spec, delay=4)
    result = gm.simulate(task="digits", network=net, algorithm="d-asgd", epochs=1, model="linear")
    assert len(result.accuracy) == agents == result.x.shape[0] and result.summary["network"] == spec


def test_the_documented_example_runs_and_learns():
    net = gm.network("clusters:3,5", delay=20)
    algo = gm.algorithm("pc-asgd", theta="pv", criterion="descent", lam=1.0)
    result = gm.simulate(task="digits", network=net, algorithm=algo, lr=0.05, epochs=5, seed=0)
    assert isinstance(result.summary, dict) and isinstance(result.history, list) and result.run_dir is None
    assert len(result.accuracy) == 8 and all(0.15 < share < 1 for share in result.accuracy)
    assert [row["epoch"] for row in result.history] == [0, 1, 2, 3, 4, 5]
    assert result.history[-1]["accuracy"] == result.accuracy == result.summary["accuracy_per_agent"]
    assert result.summary["options"]["criterion"] == "descent" and result.summary["iterations"] == 60


def test_sync_learns_the_digits():
    result = gm.simulate(algorithm="sync", lr=0.5, epochs=10, model="linear")
    assert min(result.accuracy) > 0.9
    losses = [np.mean(row["train_loss"]) for row in result.history[1:]]
    assert losses[-1] < 0.5 * losses[0]


def toy_task(model=lambda: nn.Linear(4, 2)):
    draws = torch.Generator().manual_seed(1)
    x = torch.randn(96, 4, generator=draws)
    y = (x[:, 0] > 0).to(torch.int64)
    return gm.Task("toy", model, gm.Examples(x[:64], y[:64]), gm.Examples(x[64:], y[64:]))


def test_a_task_of_ones_own_is_learned():
    seen = []
    result = gm.simulate(
        toy_task(),
        "ring:4",
        "pc-asgd/theta=0.5",
        delay=2,
        lr=0.5,
        epochs=8,
        batch=4,
        on_step=lambda t, _: seen.append(t),
    )
    assert min(result.accuracy) > 0.85 and result.summary["task"] == "toy" and result.summary["model"] == "custom"
    assert seen == list(range(1, 33))


def test_a_registered_algorithm_is_simulated_and_counted_by_its_declaration(monkeypatch):
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    monkeypatch.setattr(registry, "_ALIASES", dict(registry._ALIASES))
    from dataclasses import dataclass

    from gossamer.algorithms.options import option

    @gm.register("alone", "hermit")
    @dataclass(frozen=True, kw_only=True)
    class Alone(gm.Algorithm):
        """Listens to nobody."""

        pace: float = option(1.0, "times the learning rate")

        @property
        def message(self):
            return ("x", "v", "g")

        def step(self, own, inbox, weights, noise):
            return gm.Update(own.x - self.pace * own.lr * own.v)

    half = gm.simulate(toy_task(), "ring:4", "hermit/pace=0.5", delay=2, lr=0.2, epochs=2, batch=4, momentum=0.5)
    whole = gm.simulate(toy_task(), "ring:4", gm.algorithm("alone"), delay=2, lr=0.1, epochs=2, batch=4, momentum=0.5)
    assert torch.equal(half.x, whole.x) and half.summary["algorithm"] == "alone"
    assert half.summary["bytes_sent"] == 8 * 8 * 3 * 10 * 4  # steps x links both ways x vectors x d x float32
    # With nobody to listen to, an agent is torch's own SGD on its batches.
    run = make_training(
        make_settings({"lr": 0.1, "epochs": 2, "batch": 4, "momentum": 0.5, "delay": "2"}),
        task=toy_task(),
        network=gm.network("ring:4", 2),
        algorithm=gm.algorithm("alone"),
    )
    module = toy_task().fresh_module(0).module
    sgd = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5)
    for step in range(8):
        chosen = run.simulation.source.batches.draw(step).indices[2]
        sgd.zero_grad()
        nn.functional.cross_entropy(module(run.task.train.x[chosen]), run.task.train.y[chosen]).backward()
        sgd.step()
    torch.testing.assert_close(whole.x[2], nn.utils.parameters_to_vector(module.parameters()).detach())
    with pytest.raises(gm.UserError, match="already registered"):
        gm.register("alone")(Alone)


def test_a_model_with_dropout_repeats_with_its_seed():
    task = toy_task(lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)))
    first, again = (gm.simulate(task, "ring:4", "d-asgd", delay=2, epochs=1, batch=4) for _ in range(2))
    assert torch.equal(first.x, again.x) and first.accuracy == again.accuracy


def test_settings_beside_a_network_object_are_not_dropped():
    with pytest.raises(gm.UserError, match="'delay' belongs to the given network object"):
        gm.simulate(network=gm.network("ring:4"), algorithm="d-asgd", delay=5, **SHORT)


# Determinism.


@pytest.mark.parametrize("algorithm", ["sync", "pc-asgd/theta=uniform", "dm-asgd"])
def test_the_same_settings_give_the_same_bytes_and_another_seed_others(tmp_path, algorithm):
    values = {"delay": "uniform:1,6", "loss": 0.1, "momentum": 0.9, **SHORT}
    for name, seed in (("first", 0), ("again", 0), ("other", 1)):
        torch.manual_seed(len(name))  # which must not matter
        gm.simulate(algorithm=algorithm, seed=seed, out=tmp_path / name, **values)
    first, again, other = (timeless(tmp_path / name / "metrics.jsonl") for name in ("first", "again", "other"))
    assert first == again != other
    first, again, other = (arrays(tmp_path / name / "checkpoint.npz") for name in ("first", "again", "other"))
    assert first == again and first["simulation.x"] != other["simulation.x"]


def test_every_part_of_a_run_depends_on_its_seed():
    first, other = training(delay="uniform:1,6"), training(delay="uniform:1,6", seed=1)
    assert not torch.equal(first.simulation.x, other.simulation.x)
    assert not torch.equal(
        first.simulation.source.batches.draw(0).indices, other.simulation.source.batches.draw(0).indices
    )
    ages = [[t.simulation.mailbox.arrivals.advance(step) for step in range(9)] for t in (first, other)]
    assert not all(torch.equal(one, two) for one, two in zip(*ages, strict=True))


def test_a_run_without_a_folder_leaves_no_file_and_computes_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bare = gm.simulate(delay=5, **SHORT)
    assert not list(tmp_path.iterdir())
    kept = gm.simulate(delay=5, out="run", **SHORT)
    assert torch.equal(bare.x, kept.x) and without_seconds(bare.history) == without_seconds(kept.history)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        *("config.toml", "metrics.jsonl", "summary.json", "status.json", "checkpoint.npz")
    }
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == kept.history
    assert json.loads((tmp_path / "run/summary.json").read_text()) == kept.summary


def test_a_run_leaves_torchs_global_generator_alone(monkeypatch):
    task = toy_task(lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)))
    values = {"algorithm": "d-asgd", "network": "ring:4", "delay": 2, "batch": 2, "epochs": 2}
    run = make_training(make_settings(values), task=task)
    before = torch.get_rng_state()
    monkeypatch.setattr(torch, "manual_seed", None)  # it queues calls for absent devices: not once a step
    run.run()
    assert torch.equal(torch.get_rng_state(), before)


# Discovery.


def test_clusters_are_discovered_without_changing_how_late_anything_is():
    plain = gm.network(nx.barbell_graph(3, 0), np.where(np.add.outer(*[np.arange(6) // 3] * 2) == 1, 4, 0))
    found = gm.simulate(network=plain, algorithm="pc-asgd", **SHORT)
    assert found.summary["clusters_discovered"] and found.summary["clusters"] == [[0, 1, 2], [3, 4, 5]]
    given = gm.network(nx.barbell_graph(3, 0), 4, clusters="3,3")
    told = gm.simulate(network=given, algorithm="pc-asgd", **SHORT)
    assert not told.summary["clusters_discovered"]
    assert without_seconds(told.history) == without_seconds(found.history) and torch.equal(told.x, found.x)


def test_on_a_ring_whose_links_are_all_late_each_agent_is_a_cluster():
    found = gm.simulate(network="ring:8", delay=5, algorithm="pc-asgd", **SHORT)
    assert found.summary["clusters_discovered"] and found.summary["clusters"] == [[i] for i in range(8)]
    told = gm.simulate(network="ring:8", delay=5, clusters="1,1,1,1,1,1,1,1", algorithm="pc-asgd", **SHORT)
    assert not told.summary["clusters_discovered"] and without_seconds(told.history) == without_seconds(found.history)


def test_clusters_discovered_on_lossy_links_do_not_make_them_reliable():
    net = {"network": "ring:6", "delay": 0, "loss": 0.02, "algorithm": "d-asgd"}
    found = gm.simulate(**net, **SHORT)
    assert found.summary["clusters_discovered"] and found.summary["clusters"] == [[0, 1, 2, 3, 4, 5]]
    assert found.summary["message_age"] > 0
    told = gm.simulate(**net, clusters="1,1,1,1,1,1", **SHORT)  # which d-asgd does not use, but which spare no link
    assert without_seconds(told.history) == without_seconds(found.history)


def test_who_waits_needs_no_clusters():
    summary = gm.simulate(network="ring:8", delay=5, algorithm="sync", **SHORT).summary
    assert summary["clusters"] == [] and not summary["clusters_discovered"]


# Runs of which only the end is asked for.


def at_its_end_only(*, first_row=False, stop=None, **more):
    settings = make_settings(SHORT | {"delay": "5", "eval_every": 1000} | more)
    return make_training(settings).run(stop=stop, first_row=first_row)


def test_a_run_without_a_first_row_ends_where_it_would_with_one():
    bare, full = at_its_end_only(), at_its_end_only(first_row=True)
    assert [row["step"] for row in full.history] == [0, full.summary["iterations"]]
    assert without_seconds(bare.history) == without_seconds(full.history[1:]) and torch.equal(bare.x, full.x)


@pytest.mark.parametrize("steps", [0, 3])
def test_a_run_without_a_first_row_that_is_stopped_is_evaluated_there(steps):
    asked = itertools.count()
    result = at_its_end_only(stop=lambda: "time limit" if next(asked) >= steps else None)
    assert [row["step"] for row in result.history] == [steps] == [result.summary["evaluated_step"]]
    assert result.summary["status"] == "time limit"


def test_a_run_without_a_first_row_that_diverges_is_evaluated_there():
    result = at_its_end_only(algorithm="d-asgd", lr=1e30, epochs=2, model="mlp:32")
    assert "the run was stopped there" in result.summary["status"]
    assert [row["step"] for row in result.history] == [result.summary["iterations"]]


# Non-finite losses.


@pytest.mark.parametrize("algorithm", algorithm_names())
def test_a_run_that_diverges_stops_and_says_who_and_when(tmp_path, algorithm):
    with pytest.warns(RuntimeWarning, match=r"the loss of agent \d is (nan|inf) at step \d+"):
        result = gm.simulate(algorithm=algorithm, delay=5, lr=1e30, epochs=2, out=tmp_path / "run")
    summary = result.summary
    assert f"at step {summary['iterations']}; the run was stopped there" in summary["status"]
    assert 0 < summary["iterations"] < 24 and result.history[-1]["step"] == summary["iterations"]
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [row["step"] for row in result.history]
    assert json.loads((tmp_path / "run/summary.json").read_text())["status"] == summary["status"]


def test_the_agent_named_is_the_first_whose_loss_is_not_finite(monkeypatch):
    def gradient(x, step):
        loss = torch.zeros(len(x))
        if step == 3:
            loss[2], loss[4] = math.inf, math.nan
        return torch.zeros_like(x), loss

    run = training(algorithm="d-asgd")
    monkeypatch.setattr(run.simulation.source, "gradient", gradient)
    summary = run.run().summary
    assert summary["status"].startswith("the loss of agent 2 is inf at step 3;") and summary["iterations"] == 3


def test_a_run_that_diverges_in_its_last_step_is_not_finished():
    run = training(algorithm="sync", lr=1e38, epochs=1, batch=180)
    assert run.run().summary["status"] != "finished"
