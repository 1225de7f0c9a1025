"""Processes of a launcher: they die with it, and it finds and kills those that are left.

The launcher finds its processes by their environment. A process group would not do: torchrun, or a script, may put
workers into sessions of their own. The initial environment of a process cannot change, and its children inherit it.

This file is also a program: `python child_processes.py PARENT COMMAND…` becomes a command that dies with its parent; 0
stands for any parent. So it imports nothing of the package, which would take seconds. The program runs in the new
process, before the command takes its place. Doing the same between fork and exec in the launcher, which has threads,
could hang.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1  # of Linux's prctl: the signal to receive when the parent dies


def dies_with(parent: int, command: list[str]) -> list[str]:
    """Return the command that runs another one and dies with this parent; 0 stands for any parent.

    The child dies with the thread that starts it, so start it from the main thread.
    """
    return [sys.executable, "-I", "-S", __file__, str(parent), *command]


def become(parent: int, command: list[str]) -> None:
    """Ask to be killed with the parent, restore the default signals, and become the command."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # shells make background jobs ignore it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    os.execvp(command[0], command)


def die_with(parent: int) -> None:
    """Ask to be killed when the parent dies; end now if it has died; 0 stands for any parent."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != (parent or os.getppid()):
            os._exit(1)


def find_processes(*, session: int | None = None, **marks: object) -> list[int]:
    """Return the processes with these GOSSAMER_… variables, without this one: find_processes(run="x", rank=3).

    With `session`, only those of that session: a forked process shows the variables of the fork server, which has no
    rank. Empty where there is no /proc.
    """
    wanted = {f"GOSSAMER_{name.upper()}={value}".encode() for name, value in marks.items()}
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended, or is another user's
            if wanted <= set((entry / "environ").read_bytes().split(b"\0")) and int(entry.name) != os.getpid():
                words = (entry / "stat").read_bytes().rpartition(b")")[2].split()  # state, parent, group, session
                if session is None or int(words[3]) == session:
                    found.append(int(entry.name))
    return found


def kill_processes(patience: float = 5.0, *, session: int | None = None, **marks: object) -> None:
    """Kill those processes, and any they start meanwhile, until none is left."""
    deadline = time.monotonic() + patience
    while (pids := find_processes(session=session, **marks)) and time.monotonic() < deadline:
        for pid in pids:
            send_signal(pid, signal.SIGKILL)
        time.sleep(0.01)


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
