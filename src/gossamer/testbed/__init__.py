"""Testbeds: how long iterations take, how fast links are, and who is there, in seconds."""

from gossamer.testbed.compute_time import ComputeTime, Constant
from gossamer.testbed.implied_age import implied_ages
from gossamer.testbed.link_times import LinkTimes
from gossamer.testbed.testbed import Testbed, testbed

__all__ = ["ComputeTime", "Constant", "LinkTimes", "Testbed", "implied_ages", "testbed"]
