"""The case of starting: seconds from `gossamer launch` to the first step, and from an agent's death to its next step.

Launches with and without the fork server take turns. The clock is the machine's, which all processes share.
"""

import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from gossamer.bench.cases import BenchRow, Measured, Request, case
from gossamer.bench.runtime_fleet import process_environment
from gossamer.run.agent_folder import last_words, log_path

LIMIT = 180.0  # seconds for a launch to come so far
WAYS = {"forked": "--preload", "fresh": "--no-preload"}
# Steps until there is a file 'end'. Each life notes its process and the time after its first step.
SCRIPT = """
import os, sys, time
from pathlib import Path
import torch
import gossamer as gm

folder = Path(sys.argv[1])
agent = gm.join()
model = torch.nn.Linear(20, 3)
optimizer = gm.optim.Decentralized(model.parameters(), lr=0.05, agent=agent, algorithm="d-asgd")
while not (folder / "end").exists():
    optimizer.zero_grad()
    model(torch.ones(16, 20)).square().mean().backward()
    optimizer.step()
    note = folder / f"life-{agent.rank}-{agent.run.restarts}"
    if not note.exists():
        note.with_suffix(".new").write_text(f"{os.getpid()} {time.monotonic()}")
        note.with_suffix(".new").replace(note)
    time.sleep(0.02)
agent.close()
"""


@dataclass(frozen=True)
class StartTimes:
    """Seconds of one launch."""

    first: float  # until all agents have made a step
    back: float  # from the death of an agent until its next step
    cpu: float  # of all processes, of the whole launch


@case("start", "Agents as processes: the first step, and the return of a killed agent", usual_on=(), only_on="cpu")
def start(request: Request) -> Measured:
    """Launch agents with and without the fork server in turns, and kill one of them."""
    agents, rounds = (2, 1) if request.quick else (4, 5)
    measured = Measured(
        f"gossamer launch with {agents} agents of a small model: forked from a process that has imported torch, or "
        f"fresh processes; medians of {rounds} launches in turns; a restart begins after a pause of 0.5 s"
    )
    times: dict[str, list[StartTimes]] = {way: [] for way in WAYS}
    try:
        for number in range(rounds):
            for way, flag in WAYS.items():
                request.say(f"{way}, launch {number + 1} of {rounds}")
                times[way].append(launch_once(agents, flag))
    except KeyboardInterrupt:
        measured.interrupted = True
    measured.rows = [row for way, found in times.items() if found for row in to_start_rows(way, found)]
    return measured


def to_start_rows(way: str, found: list[StartTimes]) -> list[BenchRow]:
    """Return the two rows of one way to start."""
    made = {"first step of all": [one.first for one in found], "return of one": [one.back for one in found]}
    rows: list[BenchRow] = [
        {"label": f"{way}, {what}", "seconds": statistics.median(values), "low": min(values), "high": max(values)}
        for what, values in made.items()
    ]
    rows[0]["cpu"] = 1000 * statistics.median(one.cpu for one in found)
    return rows


def launch_once(agents: int, flag: str) -> StartTimes:
    """Launch agents, kill the last one after the first step of all, let it return, and end them."""
    with tempfile.TemporaryDirectory(prefix="gossamer-bench-") as name:
        folder = Path(name)
        (folder / "train.py").write_text(SCRIPT)
        command = ["launch", "--agents", str(agents), "--out", str(folder / "out"), "--logs", "none", flag]
        used, begun = _cpu_of_children(), time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "gossamer", *command, str(folder / "train.py"), name],
            env=process_environment(threads=None),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            first = max(_life(process, folder, rank, 0)[1] for rank in range(agents)) - begun
            died = time.monotonic()
            os.kill(_life(process, folder, agents - 1, 0)[0], signal.SIGKILL)
            back = _life(process, folder, agents - 1, 1)[1] - died
            (folder / "end").touch()
            process.wait(LIMIT)
        finally:
            process.kill()  # its agents die with it
            process.wait()
        return StartTimes(first, back, _cpu_of_children() - used)


def _life(process: "subprocess.Popen[bytes]", folder: Path, rank: int, restarts: int) -> tuple[int, float]:
    """Wait for an agent's note; return its process and the time."""
    note, deadline = folder / f"life-{rank}-{restarts}", time.monotonic() + LIMIT
    while not note.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            words = last_words(log_path(folder / "out", rank))
            raise RuntimeError(f"agent {rank} of the benchmark has made no step ({words})")
        time.sleep(0.01)
    pid, seconds = note.read_text().split()
    return int(pid), float(seconds)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
