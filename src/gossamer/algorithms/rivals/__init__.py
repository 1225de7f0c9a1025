"""What the paper compares itself with, and what users would try instead: one file a rule, as pure as the others."""

# In the order in which tables show them: totals and tracking, servers, peers.
from gossamer.algorithms.rivals.sgp import Sgp  # isort: skip
from gossamer.algorithms.rivals.dga import Dga  # isort: skip
from gossamer.algorithms.rivals.dsgt import Dsgt  # isort: skip
from gossamer.algorithms.rivals.r_fast import RFast  # isort: skip
from gossamer.algorithms.rivals.asgd import Asgd  # isort: skip
from gossamer.algorithms.rivals.dc_asgd import DcAsgdA, DcAsgdC  # isort: skip
from gossamer.algorithms.rivals.dasgd_is import DasgdIs  # isort: skip
from gossamer.algorithms.rivals.gap_aware import GapAware  # isort: skip
from gossamer.algorithms.rivals.delay_adaptive import DelayAdaptive  # isort: skip
from gossamer.algorithms.rivals.delayed_nesterov import DelayedNesterov  # isort: skip
from gossamer.algorithms.rivals.ad_psgd import AdPsgd  # isort: skip
from gossamer.algorithms.rivals.local_sgd import LocalSgd  # isort: skip
from gossamer.algorithms.rivals.swift import Swift  # isort: skip
from gossamer.algorithms.rivals.feddelavg import FedDelAvg  # isort: skip
from gossamer.algorithms.rivals.diloco import DiLoCo  # isort: skip
from gossamer.algorithms.rivals.dc_s3gd import DcS3gd  # isort: skip
from gossamer.algorithms.rivals.adaptive_braking import AdaptiveBraking  # isort: skip
from gossamer.algorithms.rivals.cdmsgd import Cdmsgd  # isort: skip

__all__ = [
    "AdPsgd",
    "AdaptiveBraking",
    "Asgd",
    "Cdmsgd",
    "DasgdIs",
    "DcAsgdA",
    "DcAsgdC",
    "DcS3gd",
    "DelayAdaptive",
    "DelayedNesterov",
    "Dga",
    "DiLoCo",
    "Dsgt",
    "FedDelAvg",
    "GapAware",
    "LocalSgd",
    "RFast",
    "Sgp",
    "Swift",
]
