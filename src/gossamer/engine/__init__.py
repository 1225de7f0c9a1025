"""The simulator: all agents stacked as [N, d] on one device and one virtual clock."""

from gossamer.engine.prepare import prepare
from gossamer.engine.training import Result, Training
from gossamer.engine.trajectory import trajectory

__all__ = ["Result", "Training", "prepare", "trajectory"]
