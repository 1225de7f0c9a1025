"""Tensors as one row: where each lies in a flat vector, and the copies there and back."""

from collections.abc import Sequence

import torch

from gossamer.errors import UserError
from gossamer.shapes import Float, Tensor


class Flat:
    """The order of some tensors inside of one row [1, d]."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        if not tensors:
            raise UserError("there are no parameters to train; pass model.parameters()")
        first = tensors[0]
        for tensor in tensors:
            if tensor.dtype != first.dtype or tensor.device != first.device:
                raise UserError(
                    f"parameters are {first.dtype} on {first.device} and {tensor.dtype} on {tensor.device}; "
                    "a message is one vector, so bring them to one type and device"
                )
        if not first.is_floating_point():
            raise UserError(f"parameters are {first.dtype}; they must be floating-point numbers")
        self.tensors = list(tensors)
        self.segments = tuple(tensor.numel() for tensor in tensors)
        self.like = first

    @property
    def size(self) -> int:
        """The numbers in a row."""
        return sum(self.segments)

    def empty(self) -> Float[Tensor, "1 d"]:
        """Return room for a row."""
        return torch.empty(1, self.size, dtype=self.like.dtype, device=self.like.device)

    def views(self, row: Float[Tensor, "1 d"]) -> list[Tensor]:
        """Return the places of the tensors in a row, each in its tensor's shape."""
        pieces = row[0].split(list(self.segments))
        return [piece.view(tensor.shape) for piece, tensor in zip(pieces, self.tensors, strict=True)]

    @torch.no_grad()
    def gather(self, row: Float[Tensor, "1 d"], values: Sequence[Tensor | None] | None = None) -> Float[Tensor, "1 d"]:
        """Copy the tensors, or as many values in their place, into a row; a value that is None is zero."""
        values = self.tensors if values is None else values
        places = self.views(row)
        there = [(place, value) for place, value in zip(places, values, strict=True) if value is not None]
        for place, value in zip(places, values, strict=True):
            if value is None:
                place.zero_()
        if there:
            torch._foreach_copy_([place for place, _ in there], [_dense(value.detach()) for _, value in there])
        return row

    @torch.no_grad()
    def scatter(self, row: Float[Tensor, "1 d"]) -> None:
        """Copy a row back into the tensors."""
        torch._foreach_copy_([tensor.detach() for tensor in self.tensors], self.views(row))


def _dense(value: Tensor) -> Tensor:
    return value.to_dense() if value.is_sparse else value
