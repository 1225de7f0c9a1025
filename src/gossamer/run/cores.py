"""The cores of this machine: how many a process may use, and how many of them nobody else uses."""

import functools
import os

MOST_THREADS = 1024  # torch ends without a word at some 10,000
PATIENT = "OMP_WAIT_POLICY"
WAITING = (PATIENT, "GOMP_SPINCOUNT", "KMP_BLOCKTIME")  # how the threads of OpenMP wait for each other
SMALL_MODELS = ("linear", "mlp")  # a second thread costs them more than it saves


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache  # all runs of one command get the same number
def idle_cores() -> int:
    """Return how many of the cores were idle in the last minute, at least 1."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return min(max(1, cores() - round(load)), MOST_THREADS)


def automatic_threads(model: str) -> int:
    """Return the threads of `--threads auto`: one for a small model, or else the idle cores."""
    return 1 if model.partition(":")[0] in SMALL_MODELS else idle_cores()


def wait_patiently() -> None:
    """Let threads sleep while they wait for each other. Only before torch is imported; the user's variables count.

    By default they spin for milliseconds. Where other programs use the cores, the thread that they wait for then waits
    for a core.
    """
    if not any(name in os.environ for name in WAITING):
        os.environ[PATIENT] = "PASSIVE"
