"""The simulator: all agents stacked as [N, d] on one device and one virtual clock."""

from gossamer.engine.training import Training
from gossamer.engine.trajectory import trajectory

__all__ = ["Training", "trajectory"]
