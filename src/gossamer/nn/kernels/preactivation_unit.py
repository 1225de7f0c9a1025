"""The pre-activation unit conv(relu(norm(x))) + residual of stacked agents, forward and backward, fused.

With M pixels and C channels a pass over an activation moves M * C numbers. The unit takes 3 passes forward (statistics
read x; the convolution reads x and writes y) and 8 backward (dy, x -> dz; dz, x -> dx; x, dy -> dweight), one more each
way for a residual. Layer by layer it takes 7 and 15.
"""

from typing import Any

import torch
import triton

from gossamer.nn.kernels import convolution as conv
from gossamer.nn.kernels.batch_norm import Norm, norm_gradient, normalise, past_norm
from gossamer.nn.kernels.choose_kernel import convolve, weight_gradient
from gossamer.nn.kernels.sizes import Geometry
from gossamer.shapes import Float, Tensor


def arrange(weight: Float[Tensor, "n k c t t"], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the weights as the kernels read them, forward and backward."""
    n, channels_out, channels_in, kernel, _ = weight.shape
    size = kernel * kernel * channels_in * channels_out
    forward, backward = torch.empty((2, n, size), dtype=dtype, device=weight.device)
    source = weight if weight[0].is_contiguous() else weight.contiguous()
    conv.arrange_weight_kernel[(triton.cdiv(size, 1024), n)](
        source, forward, backward, source.stride(0), kernel * kernel, channels_in, channels_out, BLOCK=1024
    )
    return forward, backward


class Unit(torch.autograd.Function):
    """y = conv(relu(norm(x))) + residual, and a copy of x, whose gradient is added in the kernel."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        norm_weight: Tensor | None,
        norm_bias: Tensor | None,
        residual: Tensor | None,
        of: Norm | None,
        stride: int,
        padding: int,
        precision: str,
    ) -> tuple[Tensor, Tensor]:
        """Run the unit on [n, b, h, w, c]; the weight is a module's, [n, k, c, kernel, kernel]."""
        channels_out, channels_in, kernel = weight.shape[1:4]
        size = Geometry(x.shape[2], x.shape[3], channels_in, channels_out, kernel, stride, padding)
        taps, back_taps = arrange(weight, x.dtype)
        z, *prepared = normalise(x, of) if of is not None else (x, None, None, None, None)
        y, _ = convolve(z, taps, size, precision, residual)
        ctx.save_for_backward(x, z, back_taps, *prepared)
        ctx.size, ctx.precision, ctx.training = size, precision, of is not None and of.training
        ctx.has_residual = residual is not None
        ctx.set_materialize_grads(False)
        return y, x.view_as(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, passed: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, weight, norm weight, norm bias and residual."""
        x, z, taps, mean, rstd, scale, shift = ctx.saved_tensors
        if dy is None:
            return passed, *[None] * 8
        dy = dy.contiguous()
        passed = None if passed is None else passed.contiguous()
        dweight = weight_gradient(ctx.size, z, dy, ctx.precision) if ctx.needs_input_grad[1] else None
        dx = dnorm_weight = dnorm_bias = None
        if scale is not None:
            before = (x, scale, shift, mean, rstd)
            dz, sums = convolve(dy, taps, ctx.size.backward(), ctx.precision, before=before)
            dnorm_weight, dnorm_bias = norm_gradient(sums)
            dx = past_norm(dz, before, dnorm_weight, dnorm_bias, passed, training=ctx.training)
        elif ctx.needs_input_grad[0]:
            dx, _ = convolve(dy, taps, ctx.size.backward(), ctx.precision, residual=passed)
        return dx, dweight, dnorm_weight, dnorm_bias, dy if ctx.has_residual else None, *[None] * 4
