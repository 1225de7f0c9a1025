"""Becomes a command that does not outlive its parent: `python guard.py PARENT COMMAND…`, 0 for any parent.

This file is run by its path and imports nothing of the package, so that it costs an agent a few milliseconds. It runs
in the new process, before the command takes its place; doing the same between fork and exec in the launcher, which has
threads, could hang.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # of Linux's prctl: the signal to receive when the parent dies


def main(parent: int, command: list[str]) -> None:
    """Ask to be killed with the parent, restore the default signals, and become the command."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != (parent or os.getppid()):  # it died before that
            sys.exit(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # shells make background jobs ignore it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
