"""Hyper-parameters as documented dataclass fields, read from text or Python values."""

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.errors import UserError, unknown_name

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")

_HINTS: dict[type[Any], dict[str, Any]] = {}  # cached by class: reproducing the paper reads thousands of settings


@dataclass(frozen=True)
class Range:
    """The numbers that an option takes: in the words of the error, as a test, and one of them."""

    words: str
    holds: Callable[[float], bool]
    example: float


CLOSED = Range("lie in [0, 1]", lambda value: 0 <= value <= 1, 0.2)
FRACTION = Range("lie in [0, 1)", lambda value: 0 <= value < 1, 0.9)
NOT_NEGATIVE = Range("be 0 or more and finite", lambda value: 0 <= value < math.inf, 1.0)
POSITIVE = Range("be positive and finite", lambda value: 0 < value < math.inf, 0.5)
SHARE = Range("lie above 0 and be at most 1", lambda value: 0 < value <= 1, 0.9)
PERIOD = Range("be 1 step or more", lambda value: value >= 1, 8.0)
COUNT = Range("be 0 or more", lambda value: value >= 0, 10.0)


def option(
    default: Any,
    help: str,
    *,
    choices: Sequence[str] | None = None,
    within: Range | None = None,
    was: Any = None,
    later: bool = False,
) -> Any:
    """Declare a hyper-parameter: its default, one line of help, and the choices or the range, if it has any.

    `was` is a former default, which stored runs leave out; a changed default must not rename them. `later` says that
    checkpoints are older than the option: its default must leave them valid.
    """
    about = {"help": help, "choices": choices, "within": within, "was": was, "later": later}
    return dataclasses.field(default=default, metadata=about)


def check_ranges(options: Any) -> None:
    """Raise UserError if a number is outside the range of its option."""
    for field in dataclasses.fields(options):
        value, within = getattr(options, field.name), field.metadata.get("within")
        if within is not None and not within.holds(value):
            raise UserError(f"{field.name} must {within.words}, got {value}; use for example {within.example:g}")


def former_defaults(cls: type[Any]) -> dict[str, Any]:
    """Return the former defaults of the options whose default has changed."""
    return {field.name: was for field in dataclasses.fields(cls) if (was := field.metadata.get("was")) is not None}


def later_defaults(cls: type[Any]) -> dict[str, Any]:
    """Return the defaults of the options that are younger than the first checkpoints."""
    return {field.name: field.default for field in dataclasses.fields(cls) if field.metadata.get("later")}


def describe_options(cls: type[Any]) -> dict[str, dict[str, Any]]:
    """Return {option: {default, choices, help}} of a class, in the order of declaration."""
    return {
        field.name: {
            "default": field.default,
            "choices": list(field.metadata["choices"]) if field.metadata.get("choices") else None,
            "help": field.metadata.get("help", ""),
        }
        for field in dataclasses.fields(cls)
    }


def read_options(cls: type[Any], owner: str, values: dict[str, Any]) -> dict[str, Any]:
    """Convert option values, which may be text, to the types that the class declares."""
    hints = _hints_of(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    converted = {}
    for name, value in values.items():
        if name not in fields:
            raise unknown_name(f"option of {owner}", name, fields)
        converted[name] = _convert(name, value, hints[name])
        choices = fields[name].metadata.get("choices")
        if choices and converted[name] not in choices:
            raise unknown_name(f"{name} of {owner}", str(converted[name]), choices)
    return converted


def _hints_of(cls: type[Any]) -> dict[str, Any]:
    if cls not in _HINTS:
        _HINTS[cls] = typing.get_type_hints(cls)
    return _HINTS[cls]


def _convert(label: str, value: Any, hint: Any) -> Any:
    """Convert one value to bool, int, float, str, 'float | str' (a number if it reads as one) or 'str | None'."""
    if isinstance(hint, types.UnionType):
        if value is None and types.NoneType in hint.__args__:
            return None
        if float in hint.__args__:
            try:
                return _convert(label, value, float)
            except UserError:
                pass
        return str(value)
    if hint is bool:
        text = str(value).lower()
        if text not in _TRUE + _FALSE:
            raise UserError(f"{label} must be true or false, got '{value}'")
        return text in _TRUE
    if hint is str:
        return str(value)
    try:
        if isinstance(value, bool) or (hint is int and isinstance(value, float) and not value.is_integer()):
            raise ValueError
        return hint(value)
    except (TypeError, ValueError, OverflowError):
        kind = "a whole number" if hint is int else "a number"
        raise UserError(f"{label} must be {kind}, got '{value}'") from None
