"""x_i W_i^T + b_i for every agent i on a CPU. Backward, the gradient of the weights goes where the caller wants it."""

from typing import Any

import torch

from gossamer.nn.cpu_products import affine, product
from gossamer.nn.stack.leave_vmap import Session
from gossamer.shapes import Float, Tensor


class LinearFunction(torch.autograd.Function):
    """The products of a linear layer, forward and backward."""

    @staticmethod
    def forward(
        ctx: Any,
        session: Session,
        x: Float[Tensor, "n b _"],
        weight: Float[Tensor, "n out _"],
        bias: Float[Tensor, "n out"] | None,
    ) -> Float[Tensor, "n b out"]:
        """Return the outputs."""
        ctx.session, ctx.key = session, id(weight)
        ctx.save_for_backward(x, weight)
        return affine(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, weight and bias; that of the weight in its place, if it has one."""
        (dy,), (x, weight) = gradients, ctx.saved_tensors
        if torch.is_grad_enabled():  # of this pass there will be gradients again
            return None, dy @ weight, dy.mT @ x, dy.sum(dim=1)
        dx = dw = db = None
        place = ctx.session.places.pop(ctx.key, None)
        if ctx.needs_input_grad[1]:
            dx = product(dy, weight, turned=x.stride(1) == 1)  # in the layout of x, as the layer before expects
        if ctx.needs_input_grad[2]:
            dw = product(dy.mT, x, torch.empty_like(weight) if place is None else place)
        if ctx.needs_input_grad[3]:
            db = dy.sum(dim=1)
        return None, dx, dw, db
