"""Testbeds: how long iterations take, how fast links are, and who is there, in seconds."""

from gossamer.testbed.absence import AbsenceSchedule, Change
from gossamer.testbed.absence_text import SCHEDULES
from gossamer.testbed.compute_text import COMPUTES
from gossamer.testbed.compute_time import ComputeTime, Constant, IterationClock
from gossamer.testbed.link_times import Jitter, LinkTimes
from gossamer.testbed.make_testbed import testbed
from gossamer.testbed.named_beds import TESTBEDS
from gossamer.testbed.testbed import Testbed

__all__ = [
    "COMPUTES",
    "SCHEDULES",
    "TESTBEDS",
    "AbsenceSchedule",
    "Change",
    "ComputeTime",
    "Constant",
    "IterationClock",
    "Jitter",
    "LinkTimes",
    "Testbed",
    "testbed",
]
