"""A launch: its job, its watcher and its outcome, the same for processes, torchrun and Ray."""

import dataclasses
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gossamer.run.cores import cores
from gossamer.runtime.environment import VARIABLES, Run
from gossamer.runtime.launch.child_processes import dies_with


@dataclass(frozen=True, kw_only=True)
class LaunchJob:
    """The agents that one launcher starts, of a run that may have more elsewhere."""

    run: Run  # of every agent, but for rank and restarts
    ranks: tuple[int, ...]
    script: Path
    arguments: tuple[str, ...] = ()
    folder: Path
    max_restarts: int = 3
    serves_book: bool = True  # or another launcher serves it
    book_port: int = 0  # 0: any that is free

    def with_book(self, endpoint: str) -> "LaunchJob":
        """Return the job with the book's endpoint."""
        return dataclasses.replace(self, run=dataclasses.replace(self.run, book=endpoint))

    def agent(self, rank: int, restarts: int) -> Run:
        """Return one agent's settings."""
        return dataclasses.replace(self.run, rank=rank, restarts=restarts, folder=str(self.folder.resolve()))

    def environment(self, rank: int, restarts: int, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return an agent's environment: the inherited one, without an enclosing run's variables."""
        threads = max(1, cores() // len(self.ranks))
        gpus = visible_gpus(inherited)
        own_gpu = {"CUDA_VISIBLE_DEVICES": gpus[self.ranks.index(rank) % len(gpus)]} if gpus else {}
        return {
            "OMP_NUM_THREADS": str(threads),  # or each agent would start a thread for every core
            "PYTHONUNBUFFERED": "1",  # its log is read while it runs
            "TORCH_CPP_LOG_LEVEL": "ERROR",  # or a lost address book fills the log with frames of C++
            **without_run(inherited),
            **own_gpu,
            **self.agent(rank, restarts).to_environment(),
        }


def without_run(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables of another run."""
    own = {*VARIABLES, "TORCHELASTIC_RESTART_COUNT"}
    return {name: value for name, value in inherited.items() if name not in own}


def visible_gpus(inherited: Mapping[str, str]) -> list[str]:
    """Return the GPUs visible to this process, which agents get in turn."""
    named = inherited.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [gpu.strip() for gpu in named.split(",") if gpu.strip()]
    return [str(gpu) for gpu in range(torch.cuda.device_count())]


def python_command(job: LaunchJob, rank: int) -> list[str]:
    """Return the command of an agent that is a Python process."""
    return [sys.executable, str(job.script), *job.arguments]


def torchrun_command(job: LaunchJob, rank: int) -> list[str]:
    """Return the command of an agent that torchrun starts, and starts again.

    torchrun puts its workers in sessions of their own, where they would outlive it: each dies with its torchrun.
    """
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "1"),
        *("--max-restarts", str(job.max_restarts), "--monitor-interval", "0.5"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", f"{job.run.run}-{rank}"),
        *("--local-addr", "localhost", "--log-dir", str(job.folder / "torchrun"), "--no-python"),
        *dies_with(0, python_command(job, rank)),
    ]


class Watcher:
    """Receives the events of a launch; subclasses act on them."""

    def event(self, text: str) -> None:
        """Take one line about an agent that died, was restarted or gave up."""

    def output(self, rank: int, lines: list[str]) -> None:
        """Take what an agent wrote; asked for only when `listens_to` it."""

    def status(self, rows: list[dict[str, Any]]) -> None:
        """Take the newest status of all agents of the run, about twice a second."""

    def listens_to(self, rank: int) -> bool:
        """Say whether this agent's output is wanted."""
        return False


def describe_exit(status: int) -> str:
    """Describe an exit status in words."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


@dataclass
class AgentOutcome:
    """How one agent ended: its exit status (-9 for a signal 9, None when it runs elsewhere or was never started)."""

    rank: int
    exit: int | None = None
    restarts: int = 0
    status: dict[str, Any] | None = None  # its last post


@dataclass
class LaunchReport:
    """How a launch ended."""

    outcomes: list[AgentOutcome] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False
    hopeless: str | None = None  # why the launcher gave up

    @property
    def failed(self) -> list[AgentOutcome]:
        """The agents that did not finish by themselves."""
        return [outcome for outcome in self.outcomes if outcome.exit != 0]
