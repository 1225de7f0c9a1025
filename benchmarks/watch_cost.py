"""Measures the cost of `gossamer watch` for the watched run.

A small, fast simulation trains while `gossamer watch` serves an open page. The server is stopped and continued in turn
every few seconds, and the step times of both states are compared. The cost of status.json, which every run writes, is
measured separately in processor time.

Run from the root of the repository: python benchmarks/watch_cost.py [SECONDS]
"""

import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import torch

from gossamer.engine import make_training
from gossamer.engine.training import Training
from gossamer.run.folder import RunFolder
from gossamer.run.settings import make_settings

BLOCK = 2.0  # seconds watched, then not watched
SETTINGS = {"algorithm": "pc-asgd", "network": "clusters:3,5", "delay": "20", "epochs": 1_000_000, "eval_every": 100}
LOOKER = "import sys, urllib.request\nfor _ in urllib.request.urlopen(sys.argv[1]): pass"


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Clock:
    """Stops and continues the server in turn, and records the step times of both states."""

    def __init__(self, seconds: float) -> None:
        self.end = seconds
        self.steps: dict[bool, list[float]] = {True: [], False: []}
        self.blocks: dict[bool, list[float]] = {True: [], False: []}
        self._server: int | None = None
        self._kinds = itertools.cycle((True, False))

    def begin(self, server: int) -> None:
        """Start measuring."""
        self._server, self._begun = server, time.perf_counter()
        self._last, self._watched, self._block, self._next = self._begun, True, [], self._begun

    def step(self, *_: object) -> None:
        """Record a step, and switch the state at the end of a block."""
        if self._server is None:
            return
        now = time.perf_counter()
        self._block.append(now - self._last)
        if now >= self._next:
            if len(self._block) > 10:
                self.blocks[self._watched].append(statistics.fmean(self._block))
                self.steps[self._watched] += self._block
            self._watched, self._block, self._next = next(self._kinds), [], now + BLOCK
            os.kill(self._server, signal.SIGCONT if self._watched else signal.SIGSTOP)
            now = time.perf_counter()
        self._last = now

    def stop(self) -> bool:
        """Say whether the time is over."""
        return self._server is not None and time.perf_counter() - self._begun > self.end


def own_share(training: Training) -> tuple[float, float]:
    """Return the processor seconds of writing status.json, and of a step's sums of ages."""

    def of_one(act: Callable[[], None], times: int) -> float:
        begun = time.process_time()
        for _ in range(times):
            act()
        return (time.process_time() - begun) / times

    writing = statistics.median(of_one(training._tell, 20) for _ in range(15))
    heard = training._newest.ages >= 0
    sums = [torch.zeros(heard.shape, dtype=torch.int64) for _ in range(2)]

    def add() -> None:
        sums[0].add_(training._newest.ages)
        sums[1].add_(heard)

    return writing, statistics.median(of_one(add, 500) for _ in range(15))


def main(seconds: float) -> None:
    """Measure, and print the numbers."""
    torch.set_num_threads(1)
    training, clock = make_training(make_settings(SETTINGS)), Clock(seconds)
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder.create(Path(place) / "run", training.settings, training.network)
        training.run(folder, stop=lambda: training.simulation.t >= 300)  # the page needs some rows
        watch = [sys.executable, "-m", "gossamer", "watch", str(folder.path), "--json"]
        server = subprocess.Popen(watch, stdout=subprocess.PIPE, text=True)
        url = json.loads(server.stdout.readline())["url"]
        urllib.request.urlopen(url).read()
        looker = subprocess.Popen([sys.executable, "-c", LOOKER, f"{url}events"], stderr=subprocess.DEVNULL)
        time.sleep(5)
        before = processor_seconds(server.pid)
        clock.begin(server.pid)
        training.run(folder, clock.step, clock.stop)
        watched = sum(clock.steps[True])
        used = (processor_seconds(server.pid) - before) / watched
        os.kill(server.pid, signal.SIGCONT)
        server.send_signal(signal.SIGINT)
        print(f"server ended with {server.wait()}, {len(training.history)} rows, {training.simulation.t} steps")
        looker.wait()
        writing, adding = own_share(training)
    with_it, without = (statistics.median(clock.blocks[kind]) for kind in (True, False))
    pairs = [100 * (one / other - 1) for one, other in zip(clock.blocks[True], clock.blocks[False], strict=False)]
    error = 1.25 * statistics.stdev(pairs) / len(pairs) ** 0.5  # of a median
    step = statistics.median(clock.steps[False])
    print(f"a step: {1e3 * without:.3f} ms alone, {1e3 * with_it:.3f} ms watched")
    print(f"slower by {statistics.median(pairs):+.2f} ± {error:.2f} % ({len(pairs)} pairs of blocks of {BLOCK:g} s)")
    print(f"the server takes {100 * used:.2f} % of one core while a page is open")
    print(f"status.json: {1e3 * writing:.3f} ms per second, {100 * writing:.3f} % of the run")
    print(f"sums of ages: {1e6 * adding:.1f} us per step, {100 * adding / step:.3f} % of the run")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 120.0)
