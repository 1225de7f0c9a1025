"""Runs commands as a shell would, `gossamer` ones all in this process: `python page_at_work.py < commands.json`.

Only the first of them pays for the start of Python and torch. Standard input is a list of commands; standard output is
a list of [status, what it wrote].
"""

import contextlib
import io
import json
import subprocess
import sys

from gossamer.cli.main import main
from pages import words


def run(command: str) -> tuple[int, str]:
    name, *arguments = words(command)
    if name != "gossamer":
        program = [sys.executable if name == "python" else name, *arguments]
        ended = subprocess.run(program, capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout + ended.stderr
    wrote = io.StringIO()
    with contextlib.redirect_stdout(wrote), contextlib.redirect_stderr(wrote):
        try:
            main(arguments)
        except SystemExit as end:
            return int(end.code or 0), wrote.getvalue()
    return 0, wrote.getvalue()


if __name__ == "__main__":
    print(json.dumps([run(command) for command in json.load(sys.stdin)]))
