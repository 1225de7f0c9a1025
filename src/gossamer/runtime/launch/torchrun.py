"""Agents under torchrun: one torchrun of one worker for each, so that a death starts one agent again and no other."""

import sys

from gossamer.runtime.launch.job import Job
from gossamer.runtime.launch.process_family import GUARD


def torchrun_command(plan: Job, rank: int) -> list[str]:
    """Return the command of an agent that torchrun starts, and starts again.

    What torchrun starts is guarded as well: its workers lead sessions of their own and would outlive it.
    """
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "1"),
        *("--max-restarts", str(plan.max_restarts), "--monitor-interval", "0.5"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", f"{plan.run.run}-{rank}"),
        *("--local-addr", "localhost", "--log-dir", str(plan.folder / "torchrun"), "--no-python"),
        *(sys.executable, "-I", "-S", GUARD, "0", sys.executable, str(plan.script), *plan.arguments),
    ]
