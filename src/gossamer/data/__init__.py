"""Data sets, their partition over the agents, and image augmentation."""

from gossamer.data.batches import BLOCK, AugmentDraws, Batches, Normalize, crop_flip
from gossamer.data.examples import DataSet, Examples
from gossamer.data.partition import PARTITIONS, partition
from gossamer.data.sources import SOURCES, load_data, load_digits

__all__ = [
    "BLOCK",
    "PARTITIONS",
    "SOURCES",
    "AugmentDraws",
    "Batches",
    "DataSet",
    "Examples",
    "Normalize",
    "crop_flip",
    "load_data",
    "load_digits",
    "partition",
]
