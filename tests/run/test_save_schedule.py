"""When a run saves: by epochs where that is asked for, else by the clock."""

import json
from types import SimpleNamespace

import pytest

from gossamer.run import save_schedule
from gossamer.run.folder import RunFolder
from gossamer.run.save_schedule import INTERVAL, SHARE, SaveSchedule
from runs import begin, outcome


class Clock:
    """A time that moves when told to."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(save_schedule, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.mark.parametrize("every", [1, 3])
def test_a_number_of_epochs_is_kept_whatever_the_clock_says(clock, every):
    saves = SaveSchedule(every, 4)
    for seconds in (0, 1e6):
        clock.now += seconds
        assert [t for t in range(1, 37) if saves.due(t)] == list(range(4 * every, 37, 4 * every))


def test_by_the_clock_saves_are_after_an_epoch_and_seconds_apart(clock):
    saves, done = SaveSchedule(0, 4), []
    for t in range(1, 101):
        clock.now += INTERVAL / 10
        if saves.due(t):
            with saves.saving():
                pass
            done.append(t)
    assert done == [12, 24, 36, 48, 60, 72, 84, 96]  # the first ends of epochs 10 steps or more after the last save


def test_slow_saves_are_rare(clock):
    saves, spent = SaveSchedule(0, 1), 0.0
    for t in range(1, 10_001):
        clock.now += 1.0
        if saves.due(t):
            with saves.saving():
                clock.now += 7.0
                spent += 7.0
    assert 0.8 * SHARE < spent / (clock.now - 1000) <= SHARE


@pytest.mark.parametrize(("every", "saves"), [(0, 1), (1, 3)])
def test_a_short_run_is_saved_at_its_end_or_as_often_as_it_is_told(folder, monkeypatch, every, saves):
    counted = []
    real = RunFolder.save
    monkeypatch.setattr(RunFolder, "save", lambda self, state: (counted.append(1), real(self, state)))
    run, run_folder = begin(folder / "run", algorithm="d-asgd", checkpoint_every=every)
    run.run(run_folder)
    assert len(counted) == saves
    assert json.loads((folder / "run/summary.json").read_text())["status"] == "finished"


def test_when_a_run_is_saved_changes_nothing_else(folder, clock):
    ends = []
    for name, seconds in (("seldom", 0.0), ("often", INTERVAL)):
        run, run_folder = begin(folder / name, algorithm="pc-asgd", momentum=0.9)

        def tick(*_, seconds=seconds):
            clock.now += seconds

        run.run(run_folder, on_step=tick)
        assert (folder / name / "checkpoint.previous.npz").exists() is bool(seconds)
        ends.append(outcome(folder / name))
    assert ends[0] == ends[1]
