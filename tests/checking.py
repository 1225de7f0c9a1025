"""Checks every annotation in half the time; conftest.py imports this before anything of gossamer.

pytest's jaxtyping option puts `jaxtyping.jaxtyped` on every function of the package. As it stands, that checks every
argument twice, and keeps a book of dimensions also for functions that name none: most of the time of many tests. Here
beartype checks a function's arguments and result once, inside one book of dimensions where its annotations have any.
"""

import inspect
from typing import Any, get_args

import jaxtyping

_original = jaxtyping.jaxtyped


def _names_dimensions(hint: Any) -> bool:
    """Say whether an annotation holds a shape, however deep; one written as a string may."""
    if isinstance(hint, str | list | tuple):
        return isinstance(hint, str) or any(map(_names_dimensions, hint))
    return getattr(hint, "__module__", "").startswith("jaxtyping") or any(map(_names_dimensions, get_args(hint)))


def jaxtyped(fn: Any = None, *, typechecker: Any) -> Any:
    """Check a function, or a class's fields where it is a dataclass."""
    if fn is None:
        return lambda given: jaxtyped(given, typechecker=typechecker)
    if not inspect.isfunction(fn):
        return _original(fn, typechecker=typechecker)
    checked = typechecker(fn)
    if any(map(_names_dimensions, inspect.get_annotations(fn).values())):
        return _original(checked, typechecker=None)
    return checked


jaxtyping.jaxtyped = jaxtyped
