"""Triton kernels for stacked agents, and the switch between what is fast and torch's own operations.

Import `gossamer.nn.kernels.preactivation_unit` only if `usable` is True: Triton may be missing.
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
    return x.is_cuda and switched_on() and x.dtype in (torch.bfloat16, torch.float32) and _has_triton()


def switched_on() -> bool:
    """Say whether the code is outside of `switched_off`."""
    return not _off


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


@contextlib.contextmanager
def switched_off() -> Iterator[None]:
    """Use torch's own operations inside this context."""
    global _off
    _off += 1
    try:
        yield
    finally:
        _off -= 1


def dot_precision() -> str:
    """Return the precision of float32 products set in torch: 'ieee' is exact, 'tf32' has 10 bits."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
