"""The fork server: a process that imports torch and the runtime once, and then forks every agent in milliseconds.

`python fork_server.py SOCKET SCRIPT…` is started by `preload.py`, which asks through the socket. It runs as a file, so
that it can make the search path the script's before it imports anything. It forks only while it has one thread and no
CUDA: a fork loses both. A forked process is as Python makes it for the script: signals, streams, `__main__`, seeds.
"""

import builtins
import contextlib
import gc
import importlib.machinery
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

MOST = 1 << 20  # bytes of a request: a command and its environment
SETTLE = 1.0  # seconds for the threads of a library to end at the first fork


def preload() -> str | None:
    """Import what agents import; return why this process must not be forked, or None."""
    import torch

    import gossamer.runtime.book.address_book
    import gossamer.runtime.optimizer
    import gossamer.runtime.transport.sockets  # noqa: F401

    if torch.cuda.is_initialized():
        return "importing torch has initialised CUDA"
    if not (trial := os.fork()):  # OpenBLAS ends its threads before a fork, and starts them again at need
        os._exit(0)
    os.waitpid(trial, 0)
    deadline = time.monotonic() + SETTLE
    while (threads := sum(1 for _ in Path("/proc/self/task").iterdir())) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    return "importing torch has started a thread" if threads > 1 else None


def serve(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork a process for each request, and tell how each one ends; return only in a forked one, with its request."""
    bell, end = os.pipe()
    os.set_blocking(end, False)
    signal.set_wakeup_fd(end)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # any handler makes the bell ring
    poll = select.poll()
    for file in (bell, control.fileno()):
        poll.register(file, select.POLLIN)
    while True:
        ready = [file for file, _ in poll.poll()]
        if bell in ready:
            os.read(bell, 4096)
            for pid, status in ended():
                control.send(json.dumps({"ended": pid, "exit": status}).encode())
        if control.fileno() in ready:
            text, files, _, _ = socket.recv_fds(control, MOST, 2)
            if not text:  # the launcher is done
                os._exit(0)
            if not (pid := fork()):
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for file in (bell, end, control.detach()):
                    os.close(file)
                return json.loads(text), files
            control.send(json.dumps({"started": pid}).encode())
            for file in files:
                os.close(file)


def fork() -> int:
    """Return the new process, 0 in it, or -1 if the system has no room for one."""
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        return -1
    if not pid:
        from gossamer.runtime.launch.child_processes import die_with

        os.setsid()
        die_with(parent)
    return pid


def ended() -> list[tuple[int, int]]:
    """Return the processes that have ended, each with its exit status."""
    found = []
    with contextlib.suppress(ChildProcessError):  # there is none left
        while (one := os.waitpid(-1, os.WNOHANG))[0]:
            found.append((one[0], os.waitstatus_to_exitcode(one[1])))
    return found


def become(request: dict[str, Any], files: list[int]) -> None:
    """Take the streams, the environment and the arguments of a request, and seeds of one's own."""
    for number, file in enumerate(files, start=1):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.modules["numpy"].random.seed()  # Python's own generator takes a new seed after a fork by itself
    sys.modules["torch"].default_generator.seed()
    sys.orig_argv[:] = [sys.executable, *request["command"]]
    sys.excepthook = show_error


def run(command: list[str]) -> None:
    """Run a script, or a module after -m, as the main program."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    set_first_path(command)
    if command[0] == "-m":
        sys.argv = command[1:]
        getattr(runpy, "_run_module_as_main")(command[1])  # noqa: B009  # what `python -m` calls; it has no public name
        return
    sys.argv = list(command)
    path = os.path.abspath(command[0])  # noqa: PTH100  # Path would follow links
    main.__file__, main.__builtins__, main.__cached__ = path, builtins, None  # type: ignore[attr-defined]
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    exec(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), main.__dict__)


def set_first_path(command: list[str]) -> None:
    """Let Python look for modules first where it does when it runs this command."""
    if not sys.flags.safe_path:
        sys.path[0] = str(Path.cwd()) if command[0] == "-m" else str(Path(command[0]).resolve().parent)


def show_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback without the lines of this file, as if Python had run the script."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def main() -> None:
    """Import, say that this is done, serve, and run the script in every forked process."""
    control = socket.socket(fileno=int(sys.argv[1]))
    set_first_path(sys.argv[2:])
    try:
        refused = preload()
    except Exception as error:
        refused = traceback.format_exception_only(error)[-1].strip()
    control.send(json.dumps({"ready": refused is None, "why": refused}).encode())
    if refused is not None:
        return
    gc.freeze()  # or the first collection of each forked process would copy all pages
    request, files = serve(control)
    become(request, files)
    run(request["command"])


if __name__ == "__main__":
    main()
