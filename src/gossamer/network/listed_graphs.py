"""A schedule from a file: the links that are in use in each round."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from gossamer.errors import UserError, read_whole
from gossamer.network.graph_schedule import GraphOfRound, GraphSchedule, RoundGraph, both_ways, check_linked
from gossamer.network.links import Links

HEADER = ["round", "from", "to"]
COPY = "edges.csv"


@dataclass(frozen=True)
class ListedGraphs(GraphSchedule):
    """The links in use, one row (round, from, to) each; links go both ways. The rounds repeat after the last."""

    rows: tuple[tuple[int, int, int], ...]
    source: str = "list"

    def __post_init__(self) -> None:
        if not self.rows:
            raise UserError(f"schedule '{self.source}' has no rows; give one row {','.join(HEADER)} or more")
        negative = next((row for row in self.rows if min(row) < 0), None)
        if negative is not None:
            raise UserError(f"schedule '{self.source}' has the row {negative}; rounds and agents are numbered from 0")

    @classmethod
    def read(cls, path: str) -> "ListedGraphs":
        """Read a CSV file of round,from,to."""
        try:
            lines = list(csv.reader(Path(path).read_text(encoding="utf-8").splitlines()))
        except OSError as error:
            raise UserError(f"cannot read schedule '{path}' ({error.strerror}); check the path") from None
        except (UnicodeDecodeError, csv.Error):
            raise UserError(f"schedule '{path}' is not text; write it as CSV: {','.join(HEADER)}") from None
        if not lines or [name.strip() for name in lines[0]] != HEADER:
            raise UserError(f"'{path}' is no list of links by round; its first line must be {','.join(HEADER)}")
        return cls(tuple(_row(path, number, line) for number, line in enumerate(lines[1:], 2) if line), path)

    @cached_property
    def _by_round(self) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for number, one, other in self.rows:
            found.setdefault(number, []).append((one, other))
        return found

    @property
    def period(self) -> int:
        """The number of rounds after which the list begins again."""
        return 1 + max(self._by_round)

    def check(self, links: Links) -> None:
        count = links.shape[0]
        for _, one, other in self.rows:
            if max(one, other) >= count:
                raise UserError(
                    f"schedule '{self.source}' names agent {max(one, other)}; agents are numbered 0 to {count - 1}"
                )
        pairs = torch.tensor(sorted({(one, other) for _, one, other in self.rows}))
        check_linked(f"'{self.source}'", links, pairs)
        parts = len(links.part(both_ways(links, pairs)).components().unique())
        if parts > 1:
            raise UserError(
                f"schedule '{self.source}' never joins {parts} parts of the network; add rows that link them"
            )

    def begin(self, links: Links, seed: int) -> GraphOfRound:
        nobody = RoundGraph(torch.zeros(len(links), dtype=torch.bool))
        graphs = {number: RoundGraph(both_ways(links, torch.tensor(pairs))) for number, pairs in self._by_round.items()}
        return lambda round_number: graphs.get(round_number % self.period, nobody)

    def longest_gap(self, links: Links) -> int:
        return self.period - 1

    def spec(self) -> str:
        return f"edges:{self.source}"

    def copied_to(self, folder: Path) -> str:
        lines: list[Sequence[object]] = [HEADER, *self.rows]
        (folder / COPY).write_text("".join(",".join(map(str, line)) + "\n" for line in lines), encoding="utf-8")
        return f"edges:{COPY}"


def _row(path: str, number: int, line: list[str]) -> tuple[int, int, int]:
    if len(line) != len(HEADER):
        raise UserError(
            f"'{path}' line {number} has {len(line)} of {len(HEADER)} values; complete it as {','.join(HEADER)}"
        )
    first, one, other = (
        read_whole(f"{name} in line {number} of '{path}'", v) for name, v in zip(HEADER, line, strict=True)
    )
    return first, one, other
