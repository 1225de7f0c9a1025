"""A block of DenseNet-BC for stacked agents: every layer reads all channels before it and adds a few.

The channels of a block live in one buffer; a layer writes its own behind the others, so that nothing is copied to be
joined. A channel never changes, so its statistics are taken once, for all layers that read it; only scale and shift
differ from layer to layer. The wide 1 x 1 convolutions apply norm and ReLU as they read (pointwise.py). Backward, all
layers add their gradients into one buffer.

With s_l = scale and dz_l the gradient behind layer l's norm, xhat = (x - mean) rstd, a channel's gradient is

    sum_l s_l (dz_l - mean(dz_l) - xhat mean(dz_l xhat)) = sum_l s_l dz_l - offset - slope (x - mean),

    offset = sum_l s_l mean(dz_l),    slope = sum_l s_l rstd mean(dz_l xhat),

since mean and rstd are the channel's own. So each layer adds s_l dz_l in one pass, and offset and slope, a number a
channel each, are subtracted once, when the channel's gradient is taken out.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton

from gossamer.nn.kernels import batch_norm, choose_kernel, pointwise
from gossamer.nn.kernels import preactivation_unit as unit
from gossamer.nn.kernels.batch_norm import Norm
from gossamer.nn.kernels.sizes import PROGRAMS, Geometry, block_of, num_rows_of, split_rows
from gossamer.shapes import Float, Tensor

ALIGNMENT = 8  # channels: rows begin at multiples of 16 bytes, what a thread reads at once
ROWS = 128
BLOCK = 64  # channels that a program takes at once
PER_LAYER = 6  # differentiable tensors: weight, norm weight and norm bias of the 1 x 1 and of the 3 x 3 unit


@dataclass(frozen=True)
class DenseNorms:
    """The norms of one layer."""

    wide: Norm
    narrow: Norm


@dataclass(frozen=True)
class Prefix:
    """The first channels of a buffer [n, b, h, w, s], and the affine map of a norm on them."""

    buffer: Float[Tensor, "n b h w s"]
    count: int
    mean: Float[Tensor, "n c"]
    rstd: Float[Tensor, "n c"]
    scale: Float[Tensor, "n c"]
    shift: Float[Tensor, "n c"]

    @property
    def blocks(self) -> int:
        """How many programs share the channels."""
        return triton.cdiv(self.count, BLOCK)  # type: ignore[no-any-return]

    def grid(self, rows: int, last: int) -> tuple[int, int, int]:
        """Return one program for each tile of pixels, agent and block of channels."""
        return triton.cdiv(self.num_rows, rows), self.buffer.shape[0], last

    @property
    def num_rows(self) -> int:
        """Pixels of one agent."""
        return self.buffer[0].numel() // self.buffer.shape[-1]

    @property
    def sizes(self) -> dict[str, int]:
        """What every kernel is told of the buffer."""
        return {"stride_vectors": self.buffer.shape[-1] // ALIGNMENT, "count": self.count, "VECTOR": ALIGNMENT}


def _arrange(weight: Float[Tensor, "n k c 1 1"], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the weights as the kernels read them, forward and backward."""
    n, out, count = weight.shape[:3]
    width, out_block = triton.cdiv(count, BLOCK) * BLOCK, block_of(out, 128)
    forward, backward = torch.empty((2, n, width * out_block), dtype=dtype, device=weight.device)
    source = weight if weight[0].is_contiguous() else weight.contiguous()
    pointwise.arrange_weight_kernel[(triton.cdiv(width * out_block, 1024), n)](
        source, forward, backward, source.stride(0), count, out, WIDTH=width, OUT_BLOCK=out_block, BLOCK=1024
    )
    return forward, backward


def _forward(x: Prefix, weight: Tensor, out: int, precision: str) -> Float[Tensor, "n b h w k"]:
    """Return the 1 x 1 convolution of the normalised prefix, with arranged weights."""
    y = x.buffer.new_empty((*x.buffer.shape[:-1], out))
    pointwise.forward_kernel[x.grid(ROWS, 1)](
        x.buffer, x.scale, x.shift, weight, y, x.num_rows, count_out=out, PRECISION=precision,
        ROWS=ROWS, BLOCK=BLOCK, BLOCKS=x.blocks, OUT_BLOCK=block_of(out, 128), **x.sizes,
    )  # fmt: skip
    return y


def _backward(
    x: Prefix, weight: Tensor, dy: Tensor, dx: Tensor, precision: str
) -> tuple[Float[Tensor, "n k c 1 1"], Tensor, Tensor]:
    """Add scale dz to dx; return the gradients of the convolution's weight, and of the norm's weight and bias."""
    n, out = dy.shape[0], dy.shape[-1]
    rows = 64 if dy.element_size() == 2 else 32
    splits, rows_each = split_rows(x.num_rows, rows, max(1, PROGRAMS // (n * x.blocks)))
    parts = dy.new_empty((n, splits, 1, x.count, out), dtype=torch.float32)
    sums = dy.new_empty((n, splits, 2, x.count), dtype=torch.float32)
    pointwise.backward_kernel[(splits, n, x.blocks)](
        x.buffer, x.scale, x.shift, x.mean, x.rstd, weight, dy, dx, parts, sums, x.num_rows, rows_each,
        count_out=out, PRECISION=precision, ROWS=rows, BLOCK=BLOCK, BLOCKS=x.blocks,
        OUT_BLOCK=block_of(out, 128), num_stages=1, **x.sizes,
    )  # fmt: skip
    dweight = dy.new_empty((n, out, x.count, 1, 1), dtype=torch.float32)
    choose_kernel.finish_weight_gradient(parts, dweight)
    return dweight, *batch_norm.norm_gradient(sums)


class Pending:
    """The gradient of a block's buffer, as the layers add to it, and what is yet to be subtracted from it."""

    def __init__(self, buffer: Tensor, dy: Tensor, mean: Float[Tensor, "n c"] | None) -> None:
        """Start from the gradient of the block's output; `mean`: of the channels that some layer reads, in training."""
        self.buffer, self.mean = buffer, mean
        self.dx = torch.zeros_like(buffer)
        self.dx[..., : dy.shape[-1]] = dy
        n, width = buffer.shape[0], buffer.shape[-1]
        self.offset, self.slope = buffer.new_zeros((2, n, width), dtype=torch.float32)

    def postpone(self, x: Prefix, dweight: Float[Tensor, "n c"], dbias: Float[Tensor, "n c"]) -> None:
        """Note what a layer's norm subtracts."""
        if self.mean is not None:
            self.offset[:, : x.count].addcmul_(x.scale, dbias, value=1 / x.num_rows)
            self.slope[:, : x.count].addcmul_(x.scale * x.rstd, dweight, value=1 / x.num_rows)

    def take(self, first: int, count: int) -> Float[Tensor, "n b h w c"]:
        """Return the gradient of some channels, to which all layers that read them have added."""
        y = self.dx.new_empty((*self.dx.shape[:-1], count))
        num_rows, block = num_rows_of(y), block_of(count)
        rows = 4096 // block
        centred = self.mean is not None and first + count <= self.mean.shape[1]
        mean = self.mean if centred else self.offset
        assert mean is not None
        pointwise.settle_kernel[(triton.cdiv(num_rows, rows), y.shape[0], triton.cdiv(count, block))](
            self.dx, self.buffer, mean, self.offset, self.slope, y, num_rows, self.dx.shape[-1], first, count,
            mean.stride(0), self.offset.stride(0), CENTRED=centred, ROWS=rows, BLOCK=block,
        )  # fmt: skip
        return y


class DenseBlockFunction(torch.autograd.Function):
    """The input's channels and, behind them, those of every layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, norms: list[DenseNorms], precision: str, *tensors: Tensor) -> Tensor:
        """Run the block on [n, b, h, w, c]."""
        n, start, growth = x.shape[0], x.shape[-1], tensors[3].shape[1]
        total = start + len(norms) * growth
        width = triton.cdiv(total, ALIGNMENT) * ALIGNMENT
        buffer = x.new_zeros((*x.shape[:-1], width))  # what is not written yet is read, so it must be finite
        splits, _ = batch_norm.plan_statistics(x)
        parts = x.new_empty((n, splits, 2, width), dtype=torch.float32)
        saved: list[Tensor] = []
        buffer[..., :start] = x
        new, at = buffer[..., :start], 0
        for index, of in enumerate(norms):
            wide, _, _, narrow, _, _ = tensors[PER_LAYER * index : PER_LAYER * (index + 1)]
            if of.wide.training:
                batch_norm.measure(new, parts, at)
            at += new.shape[-1]
            affine = (
                batch_norm.merge(parts, num_rows_of(x), at, of.wide, x)
                if of.wide.training
                else batch_norm.running_affine(of.wide)
            )
            wide_taps, wide_back_taps = _arrange(wide, x.dtype)
            inner = _forward(Prefix(buffer, at, *affine), wide_taps, wide.shape[1], precision)
            taps, back_taps = unit.arrange(narrow, x.dtype)
            z, *prepared = batch_norm.normalise(inner, of.narrow)
            size = Geometry(x.shape[2], x.shape[3], narrow.shape[2], growth, 3, 1, 1)
            new, _ = choose_kernel.convolve(z, taps, size, precision, into=buffer[..., at : at + growth])
            saved += [*affine, inner, z, back_taps, *prepared, wide_back_taps]
        ctx.save_for_backward(buffer, *saved)
        ctx.start, ctx.growth, ctx.precision, ctx.training = start, growth, precision, norms[0].wide.training
        return buffer[..., :total]

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x and of all layers' tensors."""
        buffer, *saved = ctx.saved_tensors
        each = 12
        layers = [saved[at : at + each] for at in range(0, len(saved), each)]
        pending = Pending(buffer, dy, layers[-1][0] if ctx.training else None)
        gradients: list[Tensor] = []
        for index in reversed(range(len(layers))):
            prefix = Prefix(buffer, ctx.start + index * ctx.growth, *layers[index][:4])
            gradients = [*_layer_backward(ctx, prefix, layers[index][4:], pending), *gradients]
        return pending.take(0, ctx.start), None, None, *gradients


def _layer_backward(ctx: Any, prefix: Prefix, saved: list[Tensor], pending: Pending) -> list[Tensor]:
    """Add a layer's gradient to the pending one; return those of its six tensors."""
    inner, z, taps, mean, rstd, scale, shift, wide = saved
    size = Geometry(inner.shape[2], inner.shape[3], inner.shape[-1], ctx.growth, 3, 1, 1)
    dnew = pending.take(prefix.count, ctx.growth)
    dnarrow = choose_kernel.weight_gradient(size, z, dnew, ctx.precision)
    before = (inner, scale, shift, mean, rstd)
    dz, sums = choose_kernel.convolve(dnew, taps, size.backward(), ctx.precision, before=before)
    dnarrow_weight, dnarrow_bias = batch_norm.norm_gradient(sums)
    dinner = batch_norm.past_norm(dz, before, dnarrow_weight, dnarrow_bias, None, training=ctx.training)
    dwide, dwide_weight, dwide_bias = _backward(prefix, wide, dinner, pending.dx, ctx.precision)
    pending.postpone(prefix, dwide_weight, dwide_bias)
    return [dwide, dwide_weight, dwide_bias, dnarrow, dnarrow_weight, dnarrow_bias]
