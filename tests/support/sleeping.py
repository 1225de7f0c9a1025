"""Agents whose gradients sleep, as processes and on a testbed: `python tests/support/sleeping.py` compares the two.

Four agents with unequal speeds, in two places; messages from one place to the other take 198 ms.
"""

import json
import os
import statistics
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import gossamer as gm
from flight import SOURCE
from gossamer.run.process_settings import LinkSettings
from gossamer.runtime.environment import Run
from gossamer.runtime.launch.job import LaunchJob
from gossamer.runtime.launch.launcher import Launcher
from gossamer.runtime.timing_record import merge_timings
from sleeping_agent import LEARNING_RATE, SIZE

SCRIPT = Path(__file__).parent / "sleeping_agent.py"
SLEEPS = (0.060, 0.162, 0.069, 0.093)  # seconds; no two alike, or it would hang on their phase which message is current
FAULTS, LATENCY = "delay:198ms@0,1/2,3", 0.198
PLACES = np.array([0, 0, 1, 1])
NETWORK = "complete:4"
RULES = ("d-asgd", "sdm-asgd", "sync")
GUESS = 0.002  # seconds of an update, before it is measured


@dataclass
class Ran:
    """When each agent made its updates, in seconds since all began, and the ages of its neighbours' messages."""

    times: list[list[float]]
    ages: list[torch.Tensor]  # [updates, neighbours], -1 without a message

    def until(self, seconds: float) -> "Ran":
        counts = [bisect_right(times, seconds) for times in self.times]
        cut = zip(self.times, self.ages, counts, strict=True)
        times, ages = zip(*((times[:count], ages[:count]) for times, ages, count in cut), strict=True)
        return Ran(list(times), list(ages))

    @property
    def counts(self) -> list[int]:
        return [len(times) for times in self.times]

    @property
    def mean_ages(self) -> list[list[float]]:
        """The mean age of the messages of each neighbour at each agent."""
        return [[column[column >= 0].double().mean().item() for column in ages.T] for ages in self.ages]


def sleepers(update: float) -> gm.Testbed:
    latency = np.where(PLACES[:, None] == PLACES[None, :], 0.0, LATENCY)
    return gm.testbed(agents=4, compute=SLEEPS, latency=latency, update=update)


def predicted(rule: str, bed: gm.Testbed, seconds: float) -> Ran:
    def gradient(x: torch.Tensor, agents: torch.Tensor, iterations: torch.Tensor) -> torch.Tensor:
        return x - agents[:, None]

    line = gm.timeline(rule, NETWORK, gradient, torch.zeros(SIZE), lr=LEARNING_RATE, testbed=bed, seconds=seconds)
    return Ran(line.times, line.ages)


def case(place: Path, steps: Sequence[int], **settings: object) -> dict[str, object]:
    """One run of the four agents, each for so many steps."""
    place.mkdir()
    return {"folder": str(place), "steps": list(steps), "sleeps": SLEEPS, "settings": settings}


def measured(folder: Path, cases: list[dict[str, object]]) -> list[Ran]:
    """Run these cases one after the other, in the same four processes."""
    (folder / "cases.json").write_text(json.dumps(cases))
    run = Run(agents=4, run=f"sleep-{os.getpid()}", network=NETWORK, tolerance=0)
    job = LaunchJob(
        run=run,
        ranks=(0, 1, 2, 3),
        script=SCRIPT,
        arguments=(str(folder / "cases.json"),),
        folder=folder,
        max_restarts=0,
    )
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SOURCE, str(SCRIPT.parent), path]))
    report = Launcher(job).run()
    assert not report.failed, (folder / "agent-0.log").read_text()[-2000:]
    return [_read(Path(str(one["folder"]))) for one in cases]


def _read(folder: Path) -> Ran:
    found = [json.loads((folder / f"slept-{rank}.json").read_text()) for rank in range(4)]
    return Ran([one["times"] for one in found], [torch.tensor(one["ages"]) for one in found])


@dataclass
class Compared:
    """A rule as measured and as predicted: all until the first agent ended, and when each agent ended."""

    rule: str
    update: float  # seconds of an update, which the prediction knows
    measured: Ran
    predicted: Ran
    ends: list[float]
    predicted_ends: list[float]
    replayed: Ran  # what it recorded, on the testbed


def update_time(ran: Ran) -> float:
    """The mean seconds of an iteration in which the gradient was not meant to sleep, of agents that never wait."""
    return statistics.fmean(times[-1] / len(times) - sleep for times, sleep in zip(ran.times, SLEEPS, strict=True))


def compare(folder: Path, seconds: float) -> list[Compared]:
    """Return each rule as measured, predicted and replayed."""
    steps = {rule: predicted(rule, sleepers(GUESS), seconds).counts for rule in RULES}
    cases = []
    for rule in RULES:
        recorded = {"record": True, "folder": str(folder / rule)}
        cases.append(case(folder / rule, steps[rule], algorithm=rule, faults=FAULTS, **recorded))
    found = []
    for rule, ran in zip(RULES, measured(folder, cases), strict=True):
        merge_timings(folder / rule, 4, LinkSettings(tolerance=0))
        # How long an update takes depends on the machine and what else it does. Agents that wait hide it.
        update = found[-1].update if rule == "sync" else update_time(ran)
        first = min(times[-1] for times in ran.times)
        line = predicted(rule, sleepers(update), 1.5 * seconds)
        replayed = predicted(rule, gm.testbed(f"run:{folder / rule}"), first)
        ends = [times[count - 1] for times, count in zip(line.times, steps[rule], strict=True)]
        ran_ends = [times[-1] for times in ran.times]
        found.append(Compared(rule, update, ran.until(first), line.until(first), ran_ends, ends, replayed))
    return found


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = compare(Path(folder), seconds)
    print(f"An update takes {', '.join(f'{1000 * one.update:.1f}' for one in found[:2])} ms.\n")
    print("| rule | agent | iterations | mean ages | end, s |\n|---|---:|---:|---|---:|")
    for one in found:
        for agent in range(4):
            runs = (one.measured, one.predicted, one.replayed)
            counts = " / ".join(str(ran.counts[agent]) for ran in runs)
            ages = " / ".join(" ".join(f"{age:.2f}" for age in ran.mean_ages[agent]) for ran in runs)
            ends = f"{one.ends[agent]:.2f} / {one.predicted_ends[agent]:.2f}"
            print(f"| {one.rule} | {agent} | {counts} | {ages} | {ends} |")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 4.5)
