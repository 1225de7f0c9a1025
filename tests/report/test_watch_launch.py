"""What `gossamer launch` leaves for `gossamer watch`: a script of a user's own, followed."""

import pytest

from gossamer.errors import UserError
from gossamer.report.watch import follower as follower_module
from gossamer.report.watch.follower import Follower
from gossamer.run.status import read_status
from gossamer.train.processes.launch_status import Samples
from launching import write_script

BOOK = ("--book", "localhost:9")  # which nobody serves: these agents need none
SCRIPT = "if rank == '1' and not restarts: os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture
def launched(command, folder):
    """A launch of three agents, of which one has died once."""
    write_script(folder, SCRIPT)
    flags = ("--network", "clusters:1,2", "--delay", 4, *BOOK, "--out", "run")
    assert command("launch", *flags, "script.py").status == 0
    return folder / "run"


def test_a_launch_tells_how_its_agents_fare(launched):
    status = read_status(launched)
    assert (status["status"], status["steps"]) == ("finished", None)
    assert [(agent["state"], agent["restarts"]) for agent in status["agents"]] == [
        ("done", 0),
        ("done", 1),
        ("done", 0),
    ]
    assert [event["text"] for event in status["events"]] == ["agent 1 was ended by SIGKILL; restart 1 of 3 in 0.5 s"]


def test_a_launch_is_followed_as_far_as_its_agents_speak(launched, monkeypatch):
    monkeypatch.setattr(follower_module, "EVERY", 0.0)
    monkeypatch.setattr(follower_module, "SELDOM", 0.0)
    follower = Follower(launched)
    model = follower.model[1]
    assert model["charts"] == [] and "clusters:1,2" in model["header"]["title"]
    samples = Samples(launched)
    for step in range(3):
        said = {"state": "running", "restarts": 0, "step": step, "loss": 1.0 / (step + 1), "ages": {"0": step}}
        samples.take([{**said, "rank": rank} for rank in range(3)], 10.0 * step)
        follower.look()
    model = follower.model[1]
    charts = {chart["key"]: chart for chart in model["charts"]}
    assert set(charts) == {"loss", "message_age", "bytes_sent"} and charts["loss"]["title"] == "Training loss"
    assert charts["loss"]["curves"][0]["x"]["iterations"] == [0, 1, 2]
    (run,) = model["runs"]
    assert run["accuracy"] is None and run["best"] is None and run["link_ages"][1] == [2, None, None]
    assert [axis["key"] for axis in model["axes"] if axis["why"]] == ["epochs"]
    assert model["settings"][0]["command"] is None and "launch.json" in model["settings"][0]["note"]


@pytest.mark.parametrize("content", ["", "[]", '{"settings": {"network": "clusters:1,2", "agents": 9}, "script": "x"}'])
def test_a_note_that_cannot_be_read_is_told_in_one_line(tmp_path, content):
    (tmp_path / "launch.json").write_text(content)
    with pytest.raises(UserError, match=str(tmp_path)):
        Follower(tmp_path)
