"""A rule's arithmetic in one pass over memory: the rule runs on stand-ins for rows, a compiled loop does the rest."""

import importlib.util
from typing import TYPE_CHECKING

import torch

from gossamer.shapes import Float, Shaped, Tensor

if TYPE_CHECKING:
    from gossamer.fused.deferred import Recorder

SMALLEST = 2**18  # numbers; below, torch is as fast, and nothing need be compiled


def make_recorder(x: Float[Tensor, "n d"]) -> "Recorder | None":
    """Return a recorder for rules on rows such as x; None where torch itself is as fast, or numba is missing."""
    if not is_fused(x.numel(), x.dtype, x.device.type):
        return None
    from gossamer.fused import operations  # loads numba, in most of a second

    return operations.Recorder(*x.shape)


def is_fused(numbers: int, dtype: torch.dtype, device: str) -> bool:
    """Say whether rules on so many numbers are fused."""
    fits = device == "cpu" and dtype in (torch.float32, torch.float64) and numbers >= SMALLEST
    return fits and importlib.util.find_spec("numba") is not None


def passing(rows: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """Mark a stand-in that only the sums it is part of want: its values are not stored on the way."""
    if hasattr(rows, "recorder"):
        rows.passing = True  # type: ignore[attr-defined]
    return rows


def real(rows: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """Return the values of a tensor, which are computed now if it is a stand-in."""
    return rows.values() if hasattr(rows, "recorder") else rows
