"""Checks every annotation in a third of the time; conftest.py imports this before anything of gossamer.

pytest's jaxtyping option puts `jaxtyping.jaxtyped` on every function of the package. As it stands, that checks every
argument twice, binds them to their names at each call, and keeps a book of dimensions also for functions that name
none: most of the time of many tests. Here beartype checks a function's arguments and result once, inside one book of
dimensions where its annotations have any.
"""

import dataclasses
import functools
import inspect
from typing import Any, ForwardRef, get_args

import jaxtyping
from beartype.roar import BeartypeException

_original = jaxtyping.jaxtyped


def _names_dimensions(hint: Any) -> bool:
    """Say whether an annotation holds a shape, however deep."""
    if isinstance(hint, list | tuple):
        return any(map(_names_dimensions, hint))
    return getattr(hint, "__module__", "").startswith("jaxtyping") or any(map(_names_dimensions, get_args(hint)))


def _has_text(hint: Any) -> bool:
    """Say whether an annotation is written as a string, or holds one."""
    return isinstance(hint, str | ForwardRef) or any(map(_has_text, get_args(hint)))


def _with_a_book(fn: Any) -> Any:
    """Let a function's dimensions be the same throughout one call of it."""
    book = _original("context")  # which keeps nothing itself, so one serves all calls

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        with book:
            return fn(*args, **kwargs)

    return call


def _refusing_as_types_do(init: Any) -> Any:
    """Let a field that does not fit be a TypeError, which readers of files expect."""

    @functools.wraps(init)
    def call(*args: Any, **kwargs: Any) -> None:
        try:
            init(*args, **kwargs)
        except BeartypeException as error:
            raise jaxtyping.TypeCheckError(str(error)) from error

    return call


def jaxtyped(fn: Any = None, *, typechecker: Any = None) -> Any:
    """Check a function, or a class's fields where it is a dataclass."""
    if fn is None:
        return lambda given: jaxtyped(given, typechecker=typechecker)
    if fn == "context":
        return _original(fn)
    if inspect.isclass(fn) and dataclasses.is_dataclass(fn) and inspect.isfunction(fn.__dict__.get("__init__")):
        fn.__init__ = _refusing_as_types_do(jaxtyped(fn.__init__, typechecker=typechecker))
        return fn
    hints = inspect.get_annotations(fn).values() if inspect.isfunction(fn) else [""]
    if any(map(_has_text, hints)):
        return _original(fn, typechecker=typechecker)  # it copes with names that only type checkers import
    checked = typechecker(fn)
    return _with_a_book(checked) if any(map(_names_dimensions, hints)) else checked


jaxtyping.jaxtyped = jaxtyped
