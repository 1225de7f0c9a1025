"""Algorithms by name: `@register("pc-asgd")` registers a rule, `algorithm("pc-asgd", …)` makes one."""

from collections.abc import Callable
from typing import Any, TypeVar

from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.options import describe_options, read_options
from gossamer.errors import UserError, unknown_name

Rule = TypeVar("Rule", bound=type[Algorithm])

_RULES: dict[str, type[Algorithm]] = {}
_ALIASES: dict[str, str] = {}


def register(name: str, *aliases: str) -> Callable[[Rule], Rule]:
    """Register a rule under this name: a decorator for its class, here or in your code.

    A class that is defined again, such as in a notebook cell that runs twice, replaces its former self.

    Args:
        name: the name for `gm.algorithm` and the command line; it must not be taken.
        *aliases: further names.
    """

    def add(cls: Rule) -> Rule:
        for taken in (name, *aliases):
            owner = _RULES.get(_ALIASES.get(taken, taken))
            if owner is not None and not _defined_anew(cls, owner):
                raise UserError(f"an algorithm named '{taken}' is already registered; choose another name")
        cls.name = name
        _RULES[name] = cls
        _ALIASES.update(dict.fromkeys(aliases, name))
        return cls

    return add


def _defined_anew(cls: type[Algorithm], former: type[Algorithm]) -> bool:
    return cls is not former and (cls.__module__, cls.__qualname__) == (former.__module__, former.__qualname__)


def algorithm_names() -> list[str]:
    """Return the registered names, in the order of registration."""
    return list(_RULES)


def algorithm_class(name: str) -> type[Algorithm]:
    """Return the rule of this name; an unknown name raises UserError with the nearest one."""
    canonical = _ALIASES.get(name, name)
    if canonical not in _RULES:
        raise unknown_name("algorithm", name, _RULES)
    return _RULES[canonical]


def algorithm(name: str, **options: Any) -> Algorithm:
    """Make an algorithm: `algorithm("pc-asgd", theta="pv", criterion="descent")`.

    Args:
        name: a registered name; `gossamer algorithms` lists them.
        **options: its hyper-parameters; `gossamer algorithms NAME` lists them.
    """
    cls = algorithm_class(name)
    return cls(**read_options(cls, cls.name, options))


def parse_algorithm(text: str) -> tuple[str, dict[str, str]]:
    """Split text such as 'pc-asgd/theta=pv/criterion=descent' into a known name and options."""
    name, *parts = text.split("/")
    options = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            raise UserError(f"'{part}' in '{text}' is not an option; write NAME/OPTION=VALUE, as pc-asgd/theta=pv")
        options[key] = value
    return algorithm_class(name).name, options


def describe_algorithms() -> list[dict[str, Any]]:
    """Return name, summary, origin, aliases and options of every registered algorithm."""
    return [
        {
            "name": name,
            "summary": (cls.__doc__ or "").strip().splitlines()[0],
            "origin": cls.origin,
            "aliases": [alias for alias, target in _ALIASES.items() if target == name],
            "options": describe_options(cls),
        }
        for name, cls in _RULES.items()
    ]
