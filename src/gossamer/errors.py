"""Errors and warnings for the user. An error names the value, the limit and the remedy."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake that the user can fix. The message is one line: value, limit, remedy."""


class StabilityWarning(UserWarning):
    """A setting that is allowed, but is predicted to diverge."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Return the error for an unknown name. It suggests the closest known one."""
    choices = sorted(known)
    nearest = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    hint = f"did you mean '{nearest[0]}'? " if nearest else ""
    return UserError(f"unknown {kind} '{name}'; {hint}choose one of: {', '.join(choices)}")


def read_number(kind: str, text: str) -> float:
    """Parse a number inside a specification such as 'geometric:0.1', or name the part that is not a number."""
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{kind} must be a number, got '{text}'") from None


def read_whole(kind: str, text: str) -> int:
    """Parse a whole number inside a specification such as 'uniform:5,60', or name the part that is not a number."""
    try:
        return int(text)
    except ValueError:
        raise UserError(f"{kind} must be a whole number, got '{text}'") from None
