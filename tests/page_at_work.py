"""Runs commands as a shell would, but all of them in this process: `python page_at_work.py < steps.json`.

Only the first command pays for the start of Python and torch. Standard input is a list of commands; standard output is
a list of [status, what it wrote].
"""

import contextlib
import io
import json
import runpy
import subprocess
import sys

from gossamer.cli.main import main
from pages import words


def run(command: str) -> tuple[int, str]:
    name, *arguments = words(command)
    if name not in ("gossamer", "python"):
        ended = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout + ended.stderr
    wrote = io.StringIO()
    with contextlib.redirect_stdout(wrote), contextlib.redirect_stderr(wrote):
        try:
            if name == "gossamer":
                main(arguments)
            else:
                sys.argv = arguments
                runpy.run_path(arguments[0], run_name="__main__")
        except SystemExit as end:
            return int(end.code or 0), wrote.getvalue()
    return 0, wrote.getvalue()


if __name__ == "__main__":
    sys.path.insert(0, ".")
    print(json.dumps([run(command) for command in json.load(sys.stdin)]))
