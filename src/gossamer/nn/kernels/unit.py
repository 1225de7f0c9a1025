"""The pre-activation unit conv(relu(norm(x))) + residual of stacked agents, forward and backward, fused.

With M pixels and C channels a pass over an activation moves M * C numbers. The unit takes 3 passes forward (statistics
read x; the convolution reads x and writes y) and 8 backward (dy, x -> dz; dz, x -> dx; x, dy -> dweight), one more each
way for a residual. Layer by layer it takes 7 and 15.
"""

from typing import Any

import torch
import triton

from gossamer.nn.kernels import convolution as conv
from gossamer.nn.kernels.norms import Norm, norm_gradient, normalise, past_norm
from gossamer.nn.kernels.sizes import GRADIENT_PROGRAMS, Geometry, block_of, num_rows_of, split_rows
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


def tile_of(size: Geometry) -> tuple[int, int, int]:
    """Return the channels in and out of a convolution's tile, and its warps."""
    in_block, out_block = block_of(size.channels_in), block_of(size.channels_out)
    return in_block, out_block, 2 if min(in_block, out_block) == 16 else 4


def convolve(
    x: Float[Tensor, "n b h w c"],
    taps: Tensor,
    size: Geometry,
    precision: str,
    residual: Float[Tensor, "n b h2 w2 k"] | None = None,
    before: tuple[Tensor, ...] | None = None,
    into: Float[Tensor, "n b h2 w2 k"] | None = None,
) -> tuple[Float[Tensor, "n b h2 w2 k"], Tensor]:
    """Return conv(x) + residual; with `before` (x, scale, shift, mean, rstd), past its ReLU and with its sums.

    `into` says where to write: to some channels of a wider buffer.
    """
    n, batch = x.shape[:2]
    y = x.new_empty((n, batch, size.out_height, size.out_width, size.channels_out)) if into is None else into
    num_rows, row = num_rows_of(y), y.stride(3)
    (in_block, out_block, warps), rows = tile_of(size), 128
    arguments = size.arguments(precision, row)
    tiles = triton.cdiv(num_rows, rows)
    sums = x.new_empty((n, tiles, 2, size.channels_out) if before is not None else (1,), dtype=torch.float32)
    out_blocks = triton.cdiv(size.channels_out, out_block)
    conv.product_kernel[(tiles * out_blocks, n)](
        x, taps, x if residual is None else residual, *(before or (x,) * 5), y, sums,
        num_rows, row // arguments["OUT_VECTOR"], **arguments,
        RESIDUAL=residual is not None, BACKWARD=before is not None,
        ROWS=rows, IN_BLOCK=in_block, IN_BLOCKS=triton.cdiv(size.channels_in, in_block),
        PARTIAL=size.channels_in % in_block > 0, OUT_BLOCK=out_block, OUT_BLOCKS=out_blocks, num_warps=warps,
    )  # fmt: skip
    return y, sums


def gradient_tile_of(size: Geometry, element_size: int) -> tuple[int, int, int]:
    """Return, for the weights' gradient, the part of a window and the rows of a tile, and the stages."""
    out_block = block_of(size.channels_out)
    # Three accumulators of window x out_block must fit into the registers; a window that is cut is cut at a tap.
    limit = 64 if size.channels_in == 64 or out_block == 16 else 128
    window = min(limit, 4096 // out_block, block_of(size.kernel * size.channels_in, 128))
    if element_size > 2:
        return window, 32, 1
    return (window, 64, 3) if window * out_block <= 1024 else (window, 32, 4)


def weight_gradient(size: Geometry, z: Tensor, dy: Tensor, precision: str) -> Tensor:
    """Return [n, k, c, kernel, kernel] in float32."""
    n, num_rows = z.shape[0], num_rows_of(dy)
    out_block = block_of(size.channels_out)
    window, rows, stages = gradient_tile_of(size, z.element_size())
    out_blocks = triton.cdiv(size.channels_out, out_block)
    blocks = triton.cdiv(size.kernel * size.channels_in, window) * out_blocks
    splits, rows_each = split_rows(num_rows, rows, GRADIENT_PROGRAMS // (n * blocks))
    taps = size.kernel**2
    parts = z.new_empty((n, splits, taps, size.channels_in, size.channels_out), dtype=torch.float32)
    conv.weight_gradient_kernel[(splits, n, blocks)](
        z, dy, parts, num_rows, rows_each, **size.arguments(precision),
        ROWS=rows, WINDOW=window, OUT_BLOCK=out_block, OUT_BLOCKS=out_blocks, num_stages=stages,
    )  # fmt: skip
    shape = (n, size.channels_out, size.channels_in, size.kernel, size.kernel)
    dweight = z.new_empty(shape, dtype=torch.float32)
    conv.finish_weight_gradient_kernel[(triton.cdiv(parts[0, 0].numel(), 64), n)](
        parts, dweight, splits, taps, size.channels_in, size.channels_out,
        SPLITS=triton.next_power_of_2(splits), BLOCK=64,
    )  # fmt: skip
    return dweight


class Unit(torch.autograd.Function):
    """y = conv(relu(norm(x))) + residual, and x once more: what flows back along that copy is added in the kernel."""

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
            dz, sums = convolve(_spread(dy, ctx.size), taps, ctx.size.backward(), ctx.precision, before=before)
            dnorm_weight, dnorm_bias = norm_gradient(sums)
            dx = past_norm(dz, before, dnorm_weight, dnorm_bias, passed, training=ctx.training)
        elif ctx.needs_input_grad[0]:
            dx, _ = convolve(_spread(dy, ctx.size), taps, ctx.size.backward(), ctx.precision, residual=passed)
        return dx, dweight, dnorm_weight, dnorm_bias, dy if ctx.has_residual else None, *[None] * 4


def _spread(dy: Float[Tensor, "n b h w c"], size: Geometry) -> Float[Tensor, "n b h2 w2 c"]:
    """Put zeros between the pixels of a strided convolution's output, so that a plain one carries it back."""
    if size.stride == 1:
        return dy
    back = size.backward()
    spread = dy.new_zeros((*dy.shape[:2], back.height, back.width, dy.shape[-1]))
    spread[:, :, :: size.stride, :: size.stride] = dy
    return spread
