"""gossamer: train one model with many agents over a peer-to-peer network whose links are late."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gossamer.errors import StabilityWarning, UserError
from gossamer.version import __version__ as __version__

if TYPE_CHECKING:
    from gossamer import optim, theory
    from gossamer.algorithms import Algorithm, Inbox, Late, Noise, Own, Past, Place, Update, Weights
    from gossamer.algorithms.registry import algorithm, register
    from gossamer.data import Examples
    from gossamer.engine import Timeline, timeline, trajectory
    from gossamer.network import Network, broadcast, check_assumption_2, discover, network
    from gossamer.nn import Stacked, stack
    from gossamer.runtime import Agent, join
    from gossamer.tasks import Task
    from gossamer.testbed import Testbed, testbed
    from gossamer.train.compare import Comparison, compare
    from gossamer.train.simulate import Result, simulate

__all__ = [
    "Agent",
    "Algorithm",
    "Comparison",
    "Examples",
    "Inbox",
    "Late",
    "Network",
    "Noise",
    "Own",
    "Past",
    "Place",
    "Result",
    "StabilityWarning",
    "Stacked",
    "Task",
    "Testbed",
    "Timeline",
    "Update",
    "UserError",
    "Weights",
    "algorithm",
    "broadcast",
    "check_assumption_2",
    "compare",
    "discover",
    "join",
    "network",
    "optim",
    "register",
    "simulate",
    "stack",
    "testbed",
    "theory",
    "timeline",
    "trajectory",
]

# Importing torch takes seconds, so each public name is imported at its first use.
_NAMES_OF = {
    "gossamer.algorithms": "Algorithm Inbox Late Noise Own Past Place Update Weights algorithm register",
    "gossamer.data": "Examples",
    "gossamer.engine": "Timeline timeline trajectory",
    "gossamer.network": "Network broadcast check_assumption_2 discover network",
    "gossamer.nn": "Stacked stack",
    "gossamer.runtime": "Agent join",
    "gossamer.tasks": "Task",
    "gossamer.testbed": "Testbed testbed",
    "gossamer.train.compare": "Comparison compare",
    "gossamer.train.simulate": "Result simulate",
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in ("optim", "theory"):
        return import_module(f"gossamer.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'gossamer' has no attribute '{name}'")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps `network` and `testbed` functions: importing the sub-packages of these names would replace them."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in ("network", "testbed") or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
