"""Triton kernels for stacked agents, and the switch between them and torch's own operations.

Import `gossamer.nn.kernels.unit` only where `usable` says so: Triton is not everywhere.
"""

import contextlib
import functools
import importlib.util
from collections.abc import Iterator

import torch

from gossamer.shapes import Tensor

_off = 0


def usable(x: Tensor) -> bool:
    """Say whether the kernels take this tensor: on a CUDA device, in bfloat16 or float32, with Triton installed."""
    return x.is_cuda and not _off and x.dtype in (torch.bfloat16, torch.float32) and _has_triton()


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


@contextlib.contextmanager
def switched_off() -> Iterator[None]:
    """Use torch's own operations for a while."""
    global _off
    _off += 1
    try:
        yield
    finally:
        _off -= 1


def dot_precision() -> str:
    """Return how products of float32 are taken, as torch was told: 'ieee' exactly, 'tf32' with 10 bits."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
