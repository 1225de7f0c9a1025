"""gossamer: train one model with many agents over a peer-to-peer network whose links are late."""

from gossamer import optim, theory
from gossamer.algorithms import Algorithm, Inbox, Late, Noise, Own, Past, Place, Update, Weights, algorithm, register
from gossamer.data import Examples
from gossamer.engine import trajectory
from gossamer.errors import StabilityWarning, UserError
from gossamer.network import Network, broadcast, check_assumption_2, discover, network
from gossamer.nn import Stacked, stack
from gossamer.runtime import Agent, join
from gossamer.tasks import Task
from gossamer.train.comparison import Comparison, compare
from gossamer.train.result import Result
from gossamer.train.simulate import simulate
from gossamer.version import __version__ as __version__

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
    "theory",
    "trajectory",
]
