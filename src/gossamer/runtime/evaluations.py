"""Further evaluations of a user's model at other points, through the closure that was given to `step`."""

from collections.abc import Callable
from typing import Any

import torch

from gossamer.algorithms import Algorithm
from gossamer.errors import UserError
from gossamer.runtime.flat_row import Flat
from gossamer.shapes import Float, Tensor

Closure = Callable[[], Any]


class Evaluations:
    """Losses and gradients at a point (algorithms.base.Evaluate): the point is put into the model for a while."""

    def __init__(self, flat: Flat, num_parameters: int, closure: Closure | None, fresh: Closure | None) -> None:
        self._flat, self._num_parameters = flat, num_parameters
        self._closures = {"loss": closure, "gradient": closure, "fresh_gradient": fresh}

    def check(self, algorithm: Algorithm) -> None:
        """Refuse a rule that needs what was not given."""
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
