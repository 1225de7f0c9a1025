"""Update rules: pure functions of an agent's state and its messages. Importing this package registers them."""

from gossamer.algorithms.base import Algorithm, Evaluate, Inbox, Late, Noise, Own, Past, Place, Update, Weights
from gossamer.algorithms.registry import (
    algorithm,
    algorithm_class,
    algorithm_names,
    describe_algorithms,
    parse_algorithm,
    register,
)

# Tables show the rules in this order: the ceiling, the paper's family, our own, the rivals.
from gossamer.algorithms import d_psgd, d_asgd, p_asgd, c_asgd, pc_asgd, dm_asgd, sdm_asgd, rivals  # isort: skip  # noqa: F401

__all__ = [
    "Algorithm",
    "Evaluate",
    "Inbox",
    "Late",
    "Noise",
    "Own",
    "Past",
    "Place",
    "Update",
    "Weights",
    "algorithm",
    "algorithm_class",
    "algorithm_names",
    "describe_algorithms",
    "parse_algorithm",
    "register",
]
