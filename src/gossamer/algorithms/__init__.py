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

# Registered in the order in which tables show them: the ceiling, the paper's family, what goes beyond it.
from gossamer.algorithms.d_psgd import DPsgd  # isort: skip
from gossamer.algorithms.d_asgd import DAsgd  # isort: skip
from gossamer.algorithms.p_asgd import PAsgd  # isort: skip
from gossamer.algorithms.c_asgd import CAsgd  # isort: skip
from gossamer.algorithms.pc_asgd import PcAsgd  # isort: skip
from gossamer.algorithms.dm_asgd import DmAsgd  # isort: skip
from gossamer.algorithms.sgp import Sgp  # isort: skip
from gossamer.algorithms.dga import Dga  # isort: skip
from gossamer.algorithms.dsgt import Dsgt  # isort: skip
from gossamer.algorithms.r_fast import RFast  # isort: skip
from gossamer.algorithms.asgd import Asgd  # isort: skip
from gossamer.algorithms.dc_asgd import DcAsgdA, DcAsgdC  # isort: skip
from gossamer.algorithms.dasgd_is import DasgdIs  # isort: skip
from gossamer.algorithms.gap_aware import GapAware  # isort: skip
from gossamer.algorithms.delay_adaptive import DelayAdaptive  # isort: skip
from gossamer.algorithms.delayed_nesterov import DelayedNesterov  # isort: skip
from gossamer.algorithms.ad_psgd import AdPsgd  # isort: skip
from gossamer.algorithms.local_sgd import LocalSgd  # isort: skip
from gossamer.algorithms.swift import Swift  # isort: skip
from gossamer.algorithms.feddelavg import FedDelAvg  # isort: skip
from gossamer.algorithms.diloco import DiLoCo  # isort: skip
from gossamer.algorithms.dc_s3gd import DcS3gd  # isort: skip
from gossamer.algorithms.adaptive_braking import AdaptiveBraking  # isort: skip
from gossamer.algorithms.cdmsgd import Cdmsgd  # isort: skip

__all__ = [
    "AdPsgd",
    "AdaptiveBraking",
    "Algorithm",
    "Asgd",
    "CAsgd",
    "Cdmsgd",
    "DAsgd",
    "DPsgd",
    "DasgdIs",
    "DcAsgdA",
    "DcAsgdC",
    "DcS3gd",
    "DelayAdaptive",
    "DelayedNesterov",
    "Dga",
    "DiLoCo",
    "DmAsgd",
    "Dsgt",
    "Evaluate",
    "FedDelAvg",
    "GapAware",
    "Inbox",
    "Late",
    "LocalSgd",
    "Noise",
    "Own",
    "PAsgd",
    "Past",
    "PcAsgd",
    "Place",
    "RFast",
    "Sgp",
    "Swift",
    "Update",
    "Weights",
    "algorithm",
    "algorithm_class",
    "algorithm_names",
    "describe_algorithms",
    "parse_algorithm",
    "register",
]
