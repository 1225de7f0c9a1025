"""One agent of sleeping.py: its gradient sleeps. It notes when it made each update, and the ages of the messages."""

import json
import sys
import time
from pathlib import Path

import torch

from gossamer.optim import Decentralized
from gossamer.runtime.agent import Agent
from gossamer.runtime.environment import Run, read_environment

SIZE, LEARNING_RATE = 32, 0.1
POLL = 0.002  # seconds


def begin_together(folder, agent):
    """Wait until all agents are here; return a moment soon after, the same for all."""
    (folder / f"ready-{agent.rank}").touch()
    start = folder / "start"
    if agent.rank == 0:
        while len(list(folder.glob("ready-*"))) < agent.num_agents:
            time.sleep(POLL)
        (folder / "start.part").write_text(str(time.monotonic() + 0.3))
        (folder / "start.part").replace(start)
    while not start.exists():
        time.sleep(POLL)
    moment = float(start.read_text())
    time.sleep(max(0.0, moment - time.monotonic()))
    return moment


def take_steps(folder, agent, sleep, steps):
    x = torch.nn.Parameter(torch.zeros(SIZE))
    optimizer = Decentralized([x], lr=LEARNING_RATE, agent=agent)
    moment = begin_together(folder, agent)
    times, ages = [], []
    for _ in range(steps):
        time.sleep(sleep)
        x.grad = x.detach() - agent.rank
        optimizer.step()
        times.append(time.monotonic() - moment)
        ages.append(list(optimizer.last.ages.values()))
    (folder / f"slept-{agent.rank}.json").write_text(json.dumps({"times": times, "ages": ages}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = read_environment()
    for number, case in enumerate(json.loads(Path(sys.argv[1]).read_text())):
        run = Run(**{**vars(found), "run": f"{found.run}-{number}", "meet": 0.0, **case["settings"]})
        with Agent(run) as agent:
            take_steps(Path(case["folder"]), agent, case["sleeps"][agent.rank], case["steps"][agent.rank])
