"""Checks every annotation in half the time; conftest.py imports this before anything of gossamer.

pytest's jaxtyping option puts `jaxtyping.jaxtyped` on every function of the package. As it stands, that checks every
argument twice, and keeps a book of dimensions also for functions that name none: most of the time of many tests. Here
beartype checks a function's arguments and result once, inside one book of dimensions where its annotations have any.
"""

import inspect
from typing import Any, ForwardRef, get_args

import jaxtyping

_original = jaxtyping.jaxtyped


def _names_dimensions(hint: Any) -> bool:
    """Say whether an annotation holds a shape, however deep."""
    if isinstance(hint, list | tuple):
        return any(map(_names_dimensions, hint))
    return getattr(hint, "__module__", "").startswith("jaxtyping") or any(map(_names_dimensions, get_args(hint)))


def _has_text(hint: Any) -> bool:
    """Say whether an annotation is written as a string, or holds one."""
    return isinstance(hint, str | ForwardRef) or any(map(_has_text, get_args(hint)))


def jaxtyped(fn: Any = None, *, typechecker: Any) -> Any:
    """Check a function, or a class's fields where it is a dataclass."""
    if fn is None:
        return lambda given: jaxtyped(given, typechecker=typechecker)
    hints = inspect.get_annotations(fn).values() if inspect.isfunction(fn) else [""]
    if any(map(_has_text, hints)):
        return _original(fn, typechecker=typechecker)  # it copes with names that only type checkers import
    checked = typechecker(fn)
    if any(map(_names_dimensions, hints)):
        return _original(checked, typechecker=None)
    return checked


jaxtyping.jaxtyped = jaxtyped
