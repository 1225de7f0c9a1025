"""A user's model as one row of numbers: copies there and back, and evaluations at other points."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gossamer.algorithms import Algorithm
from gossamer.errors import UserError
from gossamer.shapes import Float, Tensor

Closure = Callable[[], Any]


class FlatTensors:
    """The order of tensors in one row [1, d]."""

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
        """Return views of a row, one in each tensor's shape."""
        pieces = row[0].split(list(self.segments))
        return [piece.view(tensor.shape) for piece, tensor in zip(pieces, self.tensors, strict=True)]

    @torch.no_grad()
    def gather(self, row: Float[Tensor, "1 d"], values: Sequence[Tensor | None] | None = None) -> Float[Tensor, "1 d"]:
        """Copy the tensors, or values in their place, into a row; None means zeros."""
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


class Evaluations:
    """Losses and gradients at a point (algorithms.base.Evaluate): the model holds the point meanwhile."""

    def __init__(self, flat: FlatTensors, num_parameters: int, closure: Closure | None, fresh: Closure | None) -> None:
        self._flat, self._num_parameters = flat, num_parameters
        self._closures = {"loss": closure, "gradient": closure, "fresh_gradient": fresh}

    def check(self, algorithm: Algorithm) -> None:
        """Refuse a rule that needs a missing closure."""
        missing = sorted(name for name in algorithm.needs if self._closures[name] is None)
        if missing:
            how = "fresh=closure_on_a_new_batch" if "fresh_gradient" in missing else "closure"
            raise UserError(
                f"{algorithm.name} with these options evaluates the model itself ({', '.join(missing)}); "
                f"call optimizer.step({how}), or choose other options"
            )

    def loss(self, x: Float[Tensor, "1 d"]) -> Float[Tensor, " 1"]:
        """Return the loss at x."""
        return self._at(x, "loss")[1]

    def gradient(self, x: Float[Tensor, "1 d"]) -> Float[Tensor, "1 d"]:
        """Return the gradient at x."""
        return self._at(x, "gradient")[0]

    def fresh_gradient(self, x: Float[Tensor, "1 d"]) -> Float[Tensor, "1 d"]:
        """Return the gradient at x on another batch."""
        return self._at(x, "fresh_gradient")[0]

    def _at(self, x: Float[Tensor, "1 d"], name: str) -> tuple[Float[Tensor, "1 d"], Float[Tensor, " 1"]]:
        """Evaluate at x and leave the model, its gradients included, as it was."""
        flat, closure = self._flat, self._closures[name]
        assert closure is not None
        before = flat.gather(flat.empty())
        parameters = flat.tensors[: self._num_parameters]
        gradients = [None if p.grad is None else p.grad.clone() for p in parameters]
        flat.scatter(x)
        with torch.enable_grad():
            loss = closure()
        nothing = [None] * (len(flat.tensors) - self._num_parameters)
        g = flat.gather(flat.empty(), [*(p.grad for p in parameters), *nothing])
        flat.scatter(before)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        return g, torch.as_tensor(loss).detach().reshape(1).to(x)
