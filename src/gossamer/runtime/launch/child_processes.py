"""A launcher's processes, found by their environment.

A process group would not do: torchrun, or a script, may put workers into sessions of their own. The initial environment
of a process cannot change, and its children inherit it.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

GUARD = str(Path(__file__).with_name("guard.py"))
PROCESSES = Path("/proc")


def dies_with_launcher(command: list[str]) -> list[str]:
    """Return the command that runs another one as a child that dies with this process.

    The child dies with the thread that starts it, so start it from the main thread.
    """
    return [sys.executable, "-I", "-S", GUARD, str(os.getpid()), *command]


def find_processes(**marks: object) -> list[int]:
    """Return the processes with these GOSSAMER_… variables, this one left out: find_processes(run="x", rank=3).

    Empty where there is no /proc.
    """
    wanted = {f"GOSSAMER_{name.upper()}={value}".encode() for name, value in marks.items()}
    found = []
    for entry in PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended, or is another user's
            if wanted <= set((entry / "environ").read_bytes().split(b"\0")) and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def kill_processes(patience: float = 5.0, **marks: object) -> None:
    """Kill those processes, and any they start meanwhile, until none is left."""
    deadline = time.monotonic() + patience
    while (pids := find_processes(**marks)) and time.monotonic() < deadline:
        for pid in pids:
            send(pid, signal.SIGKILL)
        time.sleep(0.01)


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
