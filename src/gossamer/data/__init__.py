"""Data sets, and how their examples are dealt out to the agents."""

from gossamer.data.batches import Batches
from gossamer.data.partition import PARTITIONS, partition
from gossamer.data.sources import Examples, load_digits

__all__ = ["PARTITIONS", "Batches", "Examples", "load_digits", "partition"]
