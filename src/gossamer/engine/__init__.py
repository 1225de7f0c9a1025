"""The simulator: all agents stacked as [N, d] on one device, on a clock of steps or of seconds."""

from gossamer.engine.make_training import make_training
from gossamer.engine.timed.timeline import Timeline, timeline
from gossamer.engine.training import Training
from gossamer.engine.trajectory import trajectory

__all__ = ["Timeline", "Training", "make_training", "timeline", "trajectory"]
