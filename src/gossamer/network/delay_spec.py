"""Delay models from text: '20', 'uniform:5,60', 'gilbert:0.05,0.5,40', 'trace:FILE'."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from gossamer.errors import UserError, read_number, read_whole, unknown_name
from gossamer.network.delay import Delay, Fixed, Geometric, Gilbert, PerLink, Uniform
from gossamer.network.trace import Trace

DELAYS = {
    "fixed": "every message is late by this many steps: 20",
    "uniform": "whole numbers between two, both included: uniform:5,60",
    "geometric": "arrives at each step with this probability: geometric:0.1",
    "gilbert": "a link turns bad and good again, with a delay while bad: gilbert:0.05,0.5,40",
    "trace": "replay of a CSV with step,from,to,delay: trace:FILE",
    "matrix": "one delay for each link, CSV or .npy: matrix:FILE",
}


def parse_delay(value: Any) -> Delay:
    """Make a delay model from a text of DELAYS, a number of steps, or a matrix [receiver, sender]."""
    if isinstance(value, Delay):
        return value
    if isinstance(value, str):
        return _from_text(value.strip())
    if isinstance(value, bool | np.bool_):
        raise UserError(f"delay must be a number of steps, got {value}; write 0 or 1")
    if isinstance(value, int | float | np.number):
        if not float(value).is_integer():
            raise UserError(f"delay must be a whole number of steps, got {value}; try {_nearest(value)}")
        return Fixed(int(value))
    return PerLink(_matrix(value))


def _nearest(value: Any) -> int:
    number = float(value)
    return max(0, round(number)) if np.isfinite(number) else 0


def _from_text(text: str) -> Delay:
    if text.lstrip("+-").isdecimal():
        return Fixed(read_whole("delay", text))
    kind, _, rest = text.partition(":")
    if kind not in DELAYS and kind[:1].isdecimal():
        raise UserError(f"delay must be a whole number of steps, got '{text}'; write it like 20")
    if kind not in DELAYS:
        raise unknown_name("delay", kind, DELAYS)
    if not rest:
        raise UserError(f"delay '{text}' lacks its parameters; write it like {_example(kind)}")
    if kind == "trace":
        return Trace(rest)
    if kind == "matrix":
        return PerLink(_read_matrix(Path(rest)), source=f"matrix:{rest}")
    return _from_numbers(kind, text, rest.split(","))


def _from_numbers(kind: str, text: str, parts: list[str]) -> Delay:
    def whole(index: int) -> int:
        return read_whole(f"number {index + 1} of delay '{text}'", parts[index])

    def real(index: int) -> float:
        return read_number(f"number {index + 1} of delay '{text}'", parts[index])

    match kind, len(parts):
        case "fixed", 1:
            return Fixed(whole(0))
        case "uniform", 2:
            return Uniform(whole(0), whole(1))
        case "geometric", 1:
            return Geometric(real(0))
        case "gilbert", 3:
            return Gilbert(real(0), real(1), whole(2))
        case "gilbert", 4:
            return Gilbert(real(0), real(1), whole(2), whole(3))
    raise UserError(f"delay '{text}' has {len(parts)} numbers; write it like {_example(kind)}")


def _example(kind: str) -> str:
    return DELAYS[kind].rpartition(" ")[2]


def _read_matrix(path: Path) -> torch.Tensor:
    try:
        if path.suffix == ".npy":
            return _matrix(np.load(path, allow_pickle=False))
        lines = path.read_text(encoding="utf-8").splitlines()
        return _matrix([[float(value) for value in line.split(",")] for line in lines if line.strip()])
    except OSError as error:
        raise UserError(f"cannot read delay matrix '{path}' ({error.strerror}); check the path") from None
    except UserError as error:
        raise UserError(f"'{path}': {error}") from None
    except ValueError:
        raise UserError(
            f"'{path}' is no delay matrix; write whole numbers with commas between them, a row for each agent"
        ) from None


def _matrix(value: Any) -> torch.Tensor:
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(
            f"delay {value!r:.60} is no number of steps, text or square matrix; write it like 20 or uniform:5,60"
        ) from None
    if numbers.ndim != 2 or numbers.shape[0] != numbers.shape[1] or not numbers.size:
        raise UserError(f"delay matrix has shape {numbers.shape}; it must be square, a row for each agent")
    broken = ~np.isfinite(numbers) | (numbers != np.floor(numbers))
    if broken.any():
        raise UserError(f"delay matrix holds {numbers[broken][0]}; delays are whole numbers of steps, so round it")
    return torch.from_numpy(numbers.astype(np.int64))
