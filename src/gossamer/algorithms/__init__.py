"""Update rules: pure functions of what an agent holds. Importing this package registers them."""

from gossamer.algorithms.base import (
    Algorithm,
    Evaluate,
    Inbox,
    Late,
    Noise,
    Own,
    Past,
    Place,
    Update,
    Weights,
)
from gossamer.algorithms.registry import (
    algorithm,
    algorithm_class,
    algorithm_names,
    describe_algorithms,
    parse_algorithm,
    register,
)

# Registered in the order in which tables show them: the ceiling, the paper's family, what goes beyond it, the rivals.
from gossamer.algorithms.d_psgd import DPsgd  # isort: skip
from gossamer.algorithms.d_asgd import DAsgd  # isort: skip
from gossamer.algorithms.p_asgd import PAsgd  # isort: skip
from gossamer.algorithms.c_asgd import CAsgd  # isort: skip
from gossamer.algorithms.pc_asgd import PcAsgd  # isort: skip
from gossamer.algorithms.dm_asgd import DmAsgd  # isort: skip
from gossamer.algorithms.sdm_asgd import SdmAsgd  # isort: skip
from gossamer.algorithms import rivals  # isort: skip

__all__ = [
    "Algorithm",
    "CAsgd",
    "DAsgd",
    "DPsgd",
    "DmAsgd",
    "Evaluate",
    "Inbox",
    "Late",
    "Noise",
    "Own",
    "PAsgd",
    "Past",
    "PcAsgd",
    "Place",
    "SdmAsgd",
    "Update",
    "Weights",
    "algorithm",
    "algorithm_class",
    "algorithm_names",
    "describe_algorithms",
    "parse_algorithm",
    "register",
    "rivals",
]
