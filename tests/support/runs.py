"""What the tests of whole runs share: short ones, ones that are taken up again, and what they leave behind."""

import re

from gossamer.engine import make_training
from gossamer.run.folder import RunFolder
from gossamer.run.settings import make_settings

SHORT = {"epochs": 2, "model": "linear"}
BASE = {"model": "linear", "epochs": 3, "delay": "5", "lr": 0.1, "eval_every": 5}  # 36 steps, evaluated at 5, 10, …


def training(**values):
    return make_training(make_settings({**SHORT, "delay": "5", **values}))


def begin(path, **values):
    run = make_training(make_settings({**BASE, **values}))
    return run, RunFolder.create(path, run.settings, run.network)


def take_up(path):
    folder, settings = RunFolder.open(path)
    run = make_training(settings)
    run.resume(folder)
    return run, folder


def outcome(path):
    return {name: timeless(path / name) for name in ("metrics.jsonl", "checkpoint.npz")}


def timeless(path):
    """The bytes of a file; of metrics all but the seconds, which no two runs share."""
    content = path.read_bytes()
    return re.sub(rb'"seconds": [0-9.e-]+', b'"seconds": 0', content) if path.name == "metrics.jsonl" else content


def without_seconds(history):
    """The rows of a run, all but their seconds."""
    assert all(row["seconds"] > 0 for row in history)
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history]


class Crash(Exception):
    pass


def crashing_at(crash_at):
    def crash(step, row):
        if step == crash_at:
            raise Crash

    return crash
