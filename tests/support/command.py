"""The command line in this process: its exit status and what it wrote, and the files that it left."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gossamer.cli.main import main


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        assert self.out.endswith("\n") and self.out.count("\n") == 1
        return json.loads(self.out, parse_constant=pytest.fail)


class Command:
    """Calls `gossamer` as a shell would."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Outcome:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main([str(argument) for argument in arguments])
        return Outcome(int(exit_.value.code or 0), *self._capsys.readouterr())

    def well(self, *arguments: object) -> Outcome:
        """Call, and insist on success without a word on standard error."""
        outcome = self(*arguments)
        assert (outcome.status, outcome.err) == (0, "")
        return outcome

    def refused(self, *arguments: object) -> str:
        """Call, and insist on the form of a refusal: status 2 and one line on standard error, nothing else."""
        outcome = self(*arguments)
        assert (outcome.status, outcome.out) == (2, "")
        assert outcome.err.startswith("gossamer: ") and outcome.err.endswith("\n") and outcome.err.count("\n") == 1
        assert "Traceback" not in outcome.err and "warning" not in outcome.err
        return outcome.err


def files_under(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder with its bytes; None for a folder."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}
