"""Recorded delays: the replay of a measured network."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch

from gossamer.errors import UserError
from gossamer.network.delay import Delay, Mask, Sampled, check_delay
from gossamer.network.links import Links
from gossamer.shapes import Bool, Int, Tensor

HEADER = ["step", "from", "to", "delay"]

TraceRow = tuple[int, int, int, int]


@dataclass(frozen=True, eq=False)
class Trace(Delay):
    """The recorded age of the newest message on each link, one row (step, from, to, delay) per observation.

    `recorded` is a CSV file with that header, or the rows. A link keeps its last value until its next row; before its
    first row it has that row's value. A link without rows is never late. After the last recorded step the replay
    starts again from step 0. An agent keeps the newest message, so after a jump in the record its age grows by one per
    step.
    """

    recorded: str | Path | Sequence[Sequence[int]]
    rows: tuple[TraceRow, ...] = field(init=False, repr=False)
    period: int = field(init=False, repr=False)  # steps after which the replay starts again
    # The links with rows; each has one stretch of `keys` (link * period + step, ascending).
    _pairs: Int[Tensor, "m 2"] = field(init=False, repr=False)
    _firsts: Int[Tensor, "m"] = field(init=False, repr=False)
    _keys: Int[Tensor, "r"] = field(init=False, repr=False)
    _delays: Int[Tensor, "r"] = field(init=False, repr=False)

    covers_every_link: ClassVar[bool] = True

    def __post_init__(self) -> None:
        rows = _read(Path(self.recorded)) if isinstance(self.recorded, str | Path) else _checked(self.recorded)
        if not rows:
            raise UserError(f"trace '{self._name}' has no rows; record at least one step,from,to,delay row")
        pairs = sorted({(receiver, sender) for _, sender, receiver, _ in rows})
        number = {pair: index for index, pair in enumerate(pairs)}
        period = 1 + max(row[0] for row in rows)
        # Of two rows for one link and step the later one wins.
        latest = {number[to, sender] * period + step: delay for step, sender, to, delay in rows}
        keyed = sorted(latest.items())
        keys = torch.tensor([key for key, _ in keyed])
        derived = {
            "rows": rows,
            "period": period,
            "_pairs": torch.tensor(pairs),
            "_firsts": torch.searchsorted(keys, torch.arange(len(pairs)) * period),
            "_keys": keys,
            "_delays": torch.tensor([delay for _, delay in keyed]),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def _name(self) -> str:
        return str(self.recorded) if isinstance(self.recorded, str | Path) else "trace"

    @property
    def largest(self) -> int:
        return int(self._delays.max())

    def _now(self, step: int) -> Int[Tensor, " m"]:
        """Return the delay of each link with rows at this step."""
        now = torch.arange(len(self._pairs)) * self.period + step % self.period
        last = torch.searchsorted(self._keys, now, right=True) - 1
        return self._delays[torch.maximum(last, self._firsts)]

    def sample(self, step: int, state: Tensor, links: Mask, generator: torch.Generator) -> Sampled:
        delays = torch.zeros(links.shape, dtype=torch.int64)
        delays[self._pairs[:, 0], self._pairs[:, 1]] = self._now(step)
        return delays, state

    def sample_list(self, step: int, state: Tensor, links: Links, generator: torch.Generator) -> Sampled:
        delays = torch.zeros(len(links), dtype=torch.int64)
        delays[self._numbers(links)] = self._now(step)
        return delays, state

    def late_links(self, links: Mask) -> Mask:
        late = torch.zeros_like(links)
        late[self._pairs[:, 0], self._pairs[:, 1]] = self._ever_late()
        return links & late

    def late_list(self, links: Links) -> Bool[Tensor, " e"]:
        late = torch.zeros(len(links), dtype=torch.bool)
        late[self._numbers(links)] = self._ever_late()
        return late

    def _ever_late(self) -> Bool[Tensor, " m"]:
        """Say of each link with rows whether one of its delays is not 0."""
        late = {(receiver, sender) for _, sender, receiver, delay in self.rows if delay > 0}
        return torch.tensor([tuple(pair) in late for pair in self._pairs.tolist()])

    def _numbers(self, links: Links) -> Int[Tensor, " m"]:
        """Return the numbers of the links with rows."""
        return links.find(self._pairs[:, 0], self._pairs[:, 1])

    def to_csv(self) -> str:
        """Return the rows in the file format that `trace:FILE` reads."""
        return "".join(",".join(map(str, row)) + "\n" for row in [tuple(HEADER), *self.rows])

    def check(self, links: Mask) -> None:
        self.check_list(Links.from_mask(links))

    def check_list(self, links: Links) -> None:
        outside = (self._pairs >= links.shape[0]).any(dim=1)
        missing = outside | (self._numbers(links) < 0)
        if missing.any():
            receiver, sender = self._pairs[missing][0].tolist()
            raise UserError(
                f"trace '{self._name}' names {sender}->{receiver}, which is no link among the "
                f"{links.shape[0]} agents; remove its rows or add the link to the network"
            )

    def spec(self) -> str:
        return f"trace:{self.recorded}" if isinstance(self.recorded, str | Path) else "trace"


def _checked(rows: Sequence[Sequence[int]]) -> tuple[TraceRow, ...]:
    return tuple(_checked_row(f"trace row {number}", row) for number, row in enumerate(rows, start=1))


def _checked_row(where: str, row: Sequence[int]) -> TraceRow:
    if len(row) != len(HEADER) or not all(isinstance(value, int) for value in row):
        raise UserError(f"{where} is {row}; it must hold four whole numbers {','.join(HEADER)}")
    for name, value in zip(HEADER, row, strict=True):
        if value < 0:
            raise UserError(f"{where}: {name} is {value}; it must be 0 or more")
    step, sender, receiver, delay = row
    check_delay(f"{where}: delay", delay)
    return step, sender, receiver, delay


def _read(path: Path) -> tuple[TraceRow, ...]:
    try:
        lines = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    except OSError as error:
        raise UserError(f"cannot read trace '{path}' ({error.strerror}); check the path") from None
    except (UnicodeDecodeError, csv.Error):
        raise UserError(f"trace '{path}' is not text; write it as CSV: {','.join(HEADER)}") from None
    if not lines or [name.strip() for name in lines[0]] != HEADER:
        found = ",".join(lines[0]) if lines else "an empty file"
        raise UserError(f"trace '{path}' starts with '{found}'; its first line must be {','.join(HEADER)}")
    return tuple(_parse_row(f"trace '{path}' line {number}", line) for number, line in enumerate(lines[1:], 2) if line)


def _parse_row(where: str, line: list[str]) -> TraceRow:
    if len(line) != len(HEADER):
        raise UserError(f"{where} has {len(line)} of {len(HEADER)} values; complete it as {','.join(HEADER)}")
    try:
        row = [int(value) for value in line]
    except ValueError:
        raise UserError(f"{where} is '{','.join(line)}'; it must hold four whole numbers") from None
    return _checked_row(where, row)
