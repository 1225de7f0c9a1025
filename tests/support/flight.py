"""A launched run of faulty_agent.py that a test watches and disturbs."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import gossamer

SCRIPT = Path(__file__).parent / "faulty_agent.py"
SOURCE = str(Path(gossamer.__file__).parents[1])


class Stalls:
    """How long the machine itself stood still: a thread that sleeps and notes by how much it overslept."""

    NAP = 0.01

    def __init__(self) -> None:
        self._overslept: list[tuple[float, float]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._done.wait(self.NAP):
            now = time.monotonic()
            self._overslept.append((now, now - before - self.NAP))
            before = now

    def longest(self, begin: float, end: float) -> float:
        """The longest stall whose end lies in a span."""
        return max((length for at, length in self._overslept if begin <= at <= end), default=0.0)

    def close(self) -> None:
        self._done.set()
        self._thread.join()


class Flight:
    """Four agents that are under way."""

    def __init__(self, folder: Path, *launch: str, script: tuple[str, ...] = (), agents: int = 4) -> None:
        self.folder, self.agents = folder, agents
        self.watched_until = 0.0  # when `end` let the agents go on faster
        self.stalls = Stalls()
        self.data = folder / "data"
        self.data.mkdir(parents=True)
        command = [sys.executable, "-m", "gossamer", "launch", "--network", f"complete:{agents}", "--json"]
        command += ["--algorithm", "dm-asgd"]  # PC-ASGD extrapolates what a dead agent last said (docs/LOG.md)
        command += ["--out", str(folder / "launch"), *launch, str(SCRIPT), str(self.data), *script]
        path = os.pathsep.join(filter(None, [SOURCE, os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def times(self, rank: int) -> list[float]:
        """When an agent finished each of its steps, all its lives together."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self.data / f"times-{rank}.txt").read_text().splitlines()
            return [float(parts[1]) for line in lines if len(parts := line.split()) == 2]
        return []

    def step(self, rank: int) -> int:
        with contextlib.suppress(FileNotFoundError, IndexError):
            return int((self.data / f"times-{rank}.txt").read_text().splitlines()[-1].split()[0])
        return 0

    def starts(self, rank: int) -> list[dict]:
        with contextlib.suppress(FileNotFoundError):
            lines = (self.data / f"starts-{rank}.jsonl").read_text().splitlines()
            return [json.loads(line) for line in lines if line.endswith("}")]
        return []

    def pid(self, rank: int) -> int:
        return self.starts(rank)[-1]["pid"]

    def wait(self, happened: Callable[[], bool], what: str, seconds: float = 90) -> None:
        until = time.monotonic() + seconds
        while not happened():
            assert self.process.poll() is None, f"the launcher has ended: {self.process.communicate()}"
            assert time.monotonic() < until, f"waited {seconds} s for {what}; {self.logs()}"
            time.sleep(0.02)

    def wait_for_step(self, step: int) -> None:
        self.wait(lambda: all(self.step(rank) >= step for rank in range(self.agents)), f"step {step} of all")

    def kill(self, rank: int, number: int = signal.SIGKILL) -> float:
        """Send an agent a signal; return when."""
        os.kill(self.pid(rank), number)
        return time.monotonic()

    def end(self, at_least: int = 450, seconds: float = 120) -> dict:
        """Let all agents make some more steps and end well; return what the launcher says."""
        self.watched_until = time.monotonic()
        last = max(at_least, *(self.step(rank) + 160 for rank in range(self.agents)))
        (self.data / "new").write_text(str(last))
        (self.data / "new").replace(self.data / "last-step")
        out, err = self.process.communicate(timeout=seconds)
        assert self.process.returncode == 0, f"{err}\n{self.logs()}"
        return json.loads(out)

    def accuracy(self) -> float:
        """The mean accuracy of all agents; fails if one of them did not end."""
        ends = [json.loads((self.data / f"end-{rank}.json").read_text()) for rank in range(self.agents)]
        return sum(end["accuracy"] for end in ends) / self.agents

    def logs(self) -> str:
        paths = sorted((self.folder / "launch").glob("agent-*.log"))
        return "\n".join(f"{path.name}: {path.read_text()[-800:]}" for path in paths)


def gaps(times: list[float], begin: float, end: float) -> list[float]:
    """The times between two steps of which the second lies in a span."""
    return [b - a for a, b in itertools.pairwise(times) if begin <= b <= end]


@contextlib.contextmanager
def flight(folder: Path, *launch: str, **options) -> Iterator[Flight]:
    run = Flight(folder, *launch, **options)
    try:
        yield run
    finally:
        run.stalls.close()
        if run.process.poll() is None:
            run.process.send_signal(signal.SIGTERM)
            try:
                run.process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                run.process.kill()
                run.process.communicate()
