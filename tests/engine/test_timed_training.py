"""Training on a testbed: the same states as in steps where both can say, resumed runs, and what is reported."""

import csv
import itertools
import json

import pytest
import torch

import gossamer as gm
from gossamer.engine import make_training
from gossamer.engine.execution.base import Setup
from gossamer.engine.execution.choice import make_execution
from gossamer.engine.execution.some_agents import SomeAgents
from gossamer.run.folder import RunFolder
from gossamer.run.settings import make_settings
from gossamer.tasks import make_task

QUICK = {"task": "digits", "network": "complete:4", "execution": "stacked", "epochs": 2, "batch": 64}


def run(stop_after=None, folder=None, **more):
    """Train, or stop after so many moments and resume."""
    training = make_training(make_settings({**QUICK, **more}))
    if folder is None:
        return training.run()
    moments = itertools.count()
    created = RunFolder.create(folder, training.settings, training.network)
    training.run(created, stop=lambda: next(moments) >= stop_after and "time limit")
    opened, settings = RunFolder.open(folder)
    again = make_training(settings)
    again.resume(opened)
    return again.run(opened)


def comparable(history):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history]


@pytest.mark.parametrize("algorithm", ["d-asgd", "sdm-asgd", "pc-asgd", "local-sgd"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_equal_speeds_and_whole_latencies_train_as_in_steps(algorithm, momentum):
    common = {"algorithm": algorithm, "momentum": momentum, "dtype": "float64", "network": "clusters:2,2"}
    in_steps = run(**common, delay=3)
    latency = [[0.0 if i // 2 == k // 2 else 3.0 for k in range(4)] for i in range(4)]
    settings = make_settings({**QUICK, **common, "testbed": "custom"})
    bed = gm.testbed(agents=4, compute=1.0, latency=latency)
    in_seconds = make_training(settings, testbed=bed).run()
    assert torch.allclose(in_seconds.x, in_steps.x, rtol=0, atol=1e-12)
    assert in_seconds.summary["sim_seconds"] == in_steps.summary["iterations"]
    assert in_seconds.summary["bytes_sent"] == in_steps.summary["bytes_sent"]


CASES = {
    "unequal speeds": ("sdm-asgd", "lan:4;compute=0.7,1,1.3,2.1", 0.9),
    "crowded links": ("pc-asgd", "wan:4;latency=300ms;bandwidth=40kB/s", 0.0),
    "waiting together": ("sync", "wan:4;latency=300ms", 0.9),
    "waiting apart": ("sync", "lan:4;compute=0.7,1,1.3,2.1", 0.0),
    "random times": ("sgp", "lan:4;compute=lognormal:1,0.5;jitter=0.1;loss=0.1", 0.0),
    "churn, a rule with state of links": (
        "pc-asgd/theta=kalman",
        "lan:4;compute=0.7,1,1.3,2.1;schedule=churn:3,1",
        0.0,
    ),
    "adopted states": ("dm-asgd", "lan:4;compute=0.7,1,1.3,2.1;schedule=churn:3,1;returning=adopt", 0.9),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("cut", [2, 13])
def test_a_run_resumes_byte_for_byte_with_events_in_flight(tmp_path, case, cut):
    algorithm, bed, momentum = CASES[case]
    name, _, option = algorithm.partition("/theta=")
    more = {"algorithm": name, "testbed": bed, "seconds": 5.0, "eval_seconds": 1.5, "momentum": momentum}
    more |= {"theta": option} if option else {}
    whole, resumed = run(**more), run(cut, tmp_path / "run", **more)
    assert torch.equal(whole.x, resumed.x)
    assert comparable(whole.history) == comparable(resumed.history)
    assert whole.summary["iterations_per_agent"] == resumed.summary["iterations_per_agent"]


def test_rows_are_at_their_simulated_times_and_the_last_one_at_the_end():
    rows = run(testbed="lan:4;compute=0.7,1,1.3,2.1", seconds=4.0, eval_seconds=1.5).history
    assert [row["sim_seconds"] for row in rows] == [0.0, 1.5, 3.0, 4.0]
    # Ends by 4 s: 0.7 x 5 = 3.5; 1 x 4 = 4, which counts; 1.3 x 3 = 3.9; 2.1 x 1.
    assert rows[-1]["iterations"] == [5, 4, 3, 1]
    assert rows[-1]["computing"] == pytest.approx([4.0] * 4)


def test_waiting_and_goodput_add_up_for_a_rule_that_waits():
    # Agent 3 takes 2 s and the others 1 s: they wait half of the time. Messages take none.
    summary = run(algorithm="sync", testbed="lan:4;latency=0;bandwidth=inf;slow=3*2", seconds=8.0).summary
    assert summary["iterations_per_agent"] == [4] * 4
    assert summary["waiting_seconds_per_agent"] == pytest.approx([4.0, 4.0, 4.0, 0.0])
    assert summary["goodput_per_agent"] == pytest.approx([0.5, 0.5, 0.5, 1.0])
    assert summary["goodput"] == pytest.approx(0.625)


def test_a_rule_that_sends_less_gets_its_messages_sooner():
    # One message of x alone takes the link 1 s; x and g take 2 s.
    size = 4 * run(testbed="lan:4", seconds=1.0).summary["parameters"]
    bed = f"lan:4;latency=0;bandwidth={size}"
    ages = {
        name: run(algorithm=name, testbed=bed, seconds=20.0).summary["message_age"] for name in ("d-asgd", "p-asgd")
    }
    assert ages["d-asgd"] < ages["p-asgd"]


def test_a_small_model_counts_as_a_large_one():
    true = run(testbed="lan:4", seconds=3.0).summary
    large = run(testbed=f"lan:4;model={40 * true['parameters']}", seconds=3.0).summary  # ten times as many bytes
    assert large["bytes_sent"] == 10 * true["bytes_sent"]


def test_the_target_is_what_the_first_row_that_reached_it_took():
    result = gm.simulate("digits", "complete:4", "dm-asgd", testbed="lan:4", seconds=30.0, lr=0.3, target=0.6)
    first = next(row for row in result.history if sum(row["accuracy"]) / 4 >= 0.6)
    assert result.summary["seconds_to_target"] == first["sim_seconds"] > 0
    assert result.summary["bytes_to_target"] == sum(first["bytes_sent"])
    never = gm.simulate("digits", "complete:4", "dm-asgd", delay=1, epochs=1, target="loss:0.001").summary
    assert [never[name] for name in ("seconds_to_target", "steps_to_target", "bytes_to_target")] == [None] * 3


def test_the_folder_has_the_first_spells_and_messages(tmp_path):
    gm.simulate("digits", "complete:4", "d-asgd", testbed="wan:4", seconds=3.0, out=tmp_path / "run")
    with (tmp_path / "run" / "timeline.csv").open() as file:
        rows = list(csv.DictReader(file))
    spells = [row for row in rows if row["what"] == "computing"]
    messages = [row for row in rows if row["what"] == "message"]
    assert len(spells) == 4 * 3 and len(messages) == 4 * 3 * 3
    assert all(float(row["end"]) - float(row["begin"]) > 0.05 for row in messages)  # wan: 50 ms and the bytes


def test_a_testbed_of_a_file_is_kept_with_the_run(tmp_path):
    (tmp_path / "bed.toml").write_text("agents = 4\ncompute = [1.0, 1.0, 2.0, 1.0]\n")
    path = tmp_path / "run"
    gm.simulate("digits", "complete:4", "d-asgd", testbed=str(tmp_path / "bed.toml"), seconds=2.0, out=path)
    (tmp_path / "bed.toml").unlink()
    assert make_training(RunFolder.open(path)[1]).run().summary["iterations_per_agent"] == [2, 2, 1, 2]
    assert json.loads((path / "summary.json").read_text())["sim_seconds"] == 2.0


@pytest.mark.parametrize("agents", [[0], [2, 3], [0, 2, 3], [1, 3, 0]])
def test_some_agents_have_the_gradients_that_all_have_together(agents):
    task = make_task("digits", "mlp:8")
    setup = Setup(task, task.fresh_module(0), 4, "cpu", torch.float64)
    everyone = make_execution("stacked", setup)
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(4, setup.module.size, dtype=torch.float64, generator=draws)
    inputs, targets = task.train.x[:20].double().view(4, 5, -1), task.train.y[:20].view(4, 5)
    inputs = inputs.view(4, 5, *task.train.x.shape[1:])
    g, loss = everyone.gradient(x, inputs, targets)
    mine, my_loss = SomeAgents(setup, everyone).gradient(x[agents], agents, inputs[agents], targets[agents])
    assert torch.allclose(mine, g[agents]) and torch.allclose(my_loss, loss[agents])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"testbed": "lan:4", "delay": 5}, "delay is given in steps"),
        ({"testbed": "lan:4", "loss": 0.1}, "loss is given in steps"),
        ({"testbed": "lan:5"}, "5 agents"),
        ({"seconds": 5.0}, "needs a testbed"),
        ({"testbed": "lan:4", "target": "90"}, "0.9 for 90 %"),
        ({"testbed": "lan:4", "target": "soon"}, "target must be a number"),
        ({"testbed": "lan:4", "seconds": -1.0}, "seconds must lie in"),
        ({"testbed": "lan:4", "norm_stats": "mixed"}, "norm_stats=mixed"),
        ({"testbed": "lan:4", "theta": "pv", "algorithm": "pc-asgd", "scope": "network"}, "votes"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(settings, words):
    with pytest.raises(gm.UserError, match=words) as refused:
        run(**settings)
    assert "\n" not in str(refused.value)


def test_numbers_of_python_are_not_kept_in_a_folder(tmp_path):
    bed = gm.testbed(agents=4, latency=0.1)
    assert gm.simulate("digits", "complete:4", "d-asgd", testbed=bed, seconds=2.0).summary["sim_seconds"] == 2.0
    with pytest.raises(gm.UserError, match=r"\.toml"):
        gm.simulate("digits", "complete:4", "d-asgd", testbed=bed, seconds=2.0, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
