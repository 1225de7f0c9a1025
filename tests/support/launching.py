"""Launches of tiny scripts that know nothing but their environment, and what is left of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import gossamer as gm
from gossamer.runtime.environment import Run
from gossamer.runtime.launch.job import LaunchJob, Watcher

# Every script notes each of its lives: when it began, its process, and how often it had been started before.
NOTES = """
import json, os, signal, sys, time
rank, restarts = os.environ["GOSSAMER_RANK"], int(os.environ.get("GOSSAMER_RESTARTS", "0"))
folder = os.environ["GOSSAMER_FOLDER"]
def note(name, **values):
    with open(os.path.join(folder, f"{name}-{rank}.jsonl"), "a") as file:
        file.write(json.dumps(values) + "\\n")
note("lives", pid=os.getpid(), restarts=restarts, environ=dict(os.environ), argv=sys.argv)
def count(name, other):
    path = os.path.join(folder, f"{name}-{other}.jsonl")
    return len(open(path).readlines()) if os.path.exists(path) else 0
def wait_for_ever():
    note("ready")
    while True:
        time.sleep(0.01)
"""
NOWHERE = "127.0.0.1:9"  # no address book: agents of these tests need none

# `gossamer`, but agents that end at their leisure, as on a machine that stands still for a while, are not pressed.
PATIENT = """
from gossamer.cli.main import main
from gossamer.runtime.launch import launcher
launcher.POLITE, launcher.FINAL = launcher.HURRIED = 60.0, 120.0
main()
"""


class Events(Watcher):
    """Keeps all that it is told."""

    def __init__(self, *heard):
        self.events, self.rows, self.lines, self._heard = [], [], [], heard

    def event(self, text):
        self.events.append(text)

    def status(self, rows):
        self.rows.append(rows)

    def output(self, rank, lines):
        self.lines += [(rank, line) for line in lines]

    def listens_to(self, rank):
        return rank in self._heard


def write_script(folder, body):
    path = folder / "script.py"
    path.write_text(NOTES + body)
    return path


def make_job(folder, body, agents, **values):
    run = Run(agents=agents, run=f"test-{os.getpid()}-{folder.name[-20:].replace('_', '-')}".lower(), book=NOWHERE)
    made = {"run": run, "ranks": tuple(range(agents)), "script": write_script(folder, body), "folder": folder}
    return LaunchJob(**{**made, "serves_book": False, **values})


def lines_of(path):
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def lives(folder, rank):
    return lines_of(folder / f"lives-{rank}.jsonl")


def pids(folder, agents):
    return [life["pid"] for rank in range(agents) for life in lives(folder, rank)]


def alive(pid):
    """Say whether a process runs; one that has ended but was not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def in_a_shell(folder, *arguments, **variables):
    """Start `gossamer launch` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", PATIENT, "launch", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(gm.__file__).parents[1]), "OMP_NUM_THREADS": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
