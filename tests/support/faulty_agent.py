"""A training script for the tests of faults: paced steps whose times are written down, and an accuracy at the end."""

import argparse
import contextlib
import json
import os
import time
from pathlib import Path

import torch

import gossamer as gm
from gossamer.data import load_digits
from gossamer.state.checkpoint import Checkpoints, part_of

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--pace", type=float, default=0.08, help="seconds that a step takes at least, while it is watched")
parser.add_argument("--saver", type=int, help="the agent that saves its state every 20 steps")
given = parser.parse_args()
LR, COOLING = 0.2, 150  # in its last steps the rate falls to nothing: the noise of batches is no fault
UNWATCHED = 0.01  # the pace once the test has seen enough; more than a step takes, so that agents stay together

torch.set_num_threads(1)
with contextlib.suppress(OSError):  # where it is allowed: what else the machine does is not what is measured
    os.nice(-10)  # before others of the same session, and before other sessions:
    Path("/proc/self/autogroup").write_text("-10")
agent = gm.join()
torch.manual_seed(0)
train, test = load_digits()
x, y = train.x[agent.rank :: agent.num_agents], train.y[agent.rank :: agent.num_agents]
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
optimizer = gm.optim.Decentralized(model.parameters(), lr=LR, momentum=0.5, agent=agent)

begun_at, origin = optimizer.steps_done, "neighbour" if optimizer.steps_done else "start"
(given.folder / f"{agent.rank}").mkdir(parents=True, exist_ok=True)
checkpoints = Checkpoints(given.folder / f"{agent.rank}")
if checkpoints.exist():
    state = checkpoints.load()
    model.load_state_dict(part_of(state, "model."))
    optimizer.node.load_state_dict(part_of(state, "node."))
    begun_at, origin = optimizer.steps_done, "checkpoint"
with (given.folder / f"starts-{agent.rank}.jsonl").open("a") as file:
    file.write(json.dumps({"at": begun_at, "from": origin, "pid": os.getpid(), "time": time.monotonic()}) + "\n")


def last_step() -> int | None:
    """Where to end, which the test says when it has seen enough."""
    try:
        return int((given.folder / "last-step").read_text())
    except (FileNotFoundError, ValueError):
        return None


times = (given.folder / f"times-{agent.rank}.txt").open("a")
draws = torch.Generator().manual_seed(agent.rank)
due = time.monotonic()
while (last := last_step()) is None or optimizer.steps_done < last:
    for group in optimizer.param_groups:
        group["lr"] = LR * (1.0 if last is None else min(1.0, (last - optimizer.steps_done) / COOLING))
    batch = torch.randint(len(x), (16,), generator=draws)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
    loss.backward()
    optimizer.step()
    agent.report(loss=loss.item())
    times.write(f"{optimizer.steps_done} {time.monotonic()}\n")
    times.flush()
    due = max(due + (given.pace if last is None else UNWATCHED), time.monotonic())
    time.sleep(max(0.0, due - time.monotonic()))
    if agent.rank == given.saver and optimizer.steps_done % 20 == 0:
        node = {f"node.{name}": value for name, value in optimizer.node.state_dict().items()}
        checkpoints.save({**{f"model.{name}": value for name, value in model.state_dict().items()}, **node})

with torch.no_grad():
    right = (model(test.x).argmax(dim=1) == test.y).float().mean().item()
(given.folder / f"end-{agent.rank}.json").write_text(json.dumps({"accuracy": right, "steps": optimizer.steps_done}))
agent.close()
