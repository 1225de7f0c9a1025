"""The pre-activation unit conv(relu(norm(x))) + residual of stacked agents, forward and backward, fused.

With M pixels and C channels a pass over an activation moves M * C numbers. The unit takes 3 passes forward (statistics
read x; the convolution reads x and writes y) and 8 backward (dy, x -> dz; dz, x -> dx; x, dy -> dweight), one more each
way for a residual. Layer by layer it takes 7 and 15.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton

from gossamer.nn.kernels import convolution as conv
from gossamer.nn.kernels import normalisation as norm
from gossamer.shapes import Float, Tensor

# Programs among which a sum is split: twice what a large GPU holds. Constants, so that sums are split the same way
# everywhere.
PROGRAMS = 528
GRADIENT_PROGRAMS = 264
STATISTICS_ROWS = 128  # pixels are split at multiples of this, whatever the channels, so that parts can be merged


@dataclass(frozen=True)
class Norm:
    """BatchNorm of stacked agents: [n, c] parameters and running statistics."""

    weight: Float[Tensor, "n c"]
    bias: Float[Tensor, "n c"]
    running_mean: Float[Tensor, "n c"] | None
    running_var: Float[Tensor, "n c"] | None
    momentum: float
    epsilon: float
    training: bool


@dataclass(frozen=True)
class Geometry:
    """The sizes of one convolution."""

    height: int
    width: int
    channels_in: int
    channels_out: int
    kernel: int
    stride: int
    padding: int

    @property
    def out_height(self) -> int:
        """Rows of the output."""
        return (self.height + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Columns of the output."""
        return (self.width + 2 * self.padding - self.kernel) // self.stride + 1

    def backward(self) -> "Geometry":
        """Return the convolution that carries gradients back: channels swapped, stride 1."""
        margin = self.kernel - 1 - self.padding
        grown = self.height + 2 * self.padding - self.kernel + 1, self.width + 2 * self.padding - self.kernel + 1
        return Geometry(*grown, self.channels_out, self.channels_in, self.kernel, 1, margin)

    def arguments(self, precision: str) -> dict[str, Any]:
        """Return what every kernel is told of the sizes."""
        in_vector, out_vector = _vector(self.channels_in), _vector(self.channels_out)
        if self.kernel > 1:
            in_vector = self.channels_in  # windows are cut at channel counts, so those are compiled in
        return {
            "in_vectors": self.channels_in // in_vector,
            "out_vectors": self.channels_out // out_vector,
            "IN_VECTOR": in_vector,
            "OUT_VECTOR": out_vector,
            "HEIGHT": self.height,
            "WIDTH": self.width,
            "OUT_HEIGHT": self.out_height,
            "OUT_WIDTH": self.out_width,
            "KERNEL": self.kernel,
            "STRIDE": self.stride,
            "PADDING": self.padding,
            "PRECISION": precision,
        }


def _vector(count: int) -> int:
    """Return the power of two, up to 16, that divides a channel count."""
    return min(16, count & -count)


def _block(count: int, limit: int = 64) -> int:
    """Return how many channels a program takes at once: a power of two that the matrix units can work with."""
    return int(min(limit, max(16, triton.next_power_of_2(count))))


def _splits(num_rows: int, rows: int, programs: int) -> tuple[int, int]:
    """Return among how many programs the rows of an agent are split, and the rows of each: whole tiles."""
    tiles = triton.cdiv(num_rows, rows)
    each = triton.cdiv(tiles, max(1, min(tiles, programs, 128)))
    return triton.cdiv(tiles, each), each * rows


def _rows(x: Float[Tensor, "n b h w c"]) -> int:
    return x.shape[1] * x.shape[2] * x.shape[3]


def normalise(x: Float[Tensor, "n b h w c"], of: Norm) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return relu(norm(x)), and mean, rstd, scale and shift, each [n, c]."""
    n, num_rows, channels = x.shape[0], _rows(x), x.shape[-1]
    block, vector = _block(channels), _vector(channels)
    mean, rstd, scale, shift = _statistics(x, of) if of.training else _running(of)
    z, rows = torch.empty_like(x), 8192 // block
    norm.apply_kernel[(triton.cdiv(num_rows, rows), n, triton.cdiv(channels, block))](
        x, scale, shift, z, num_rows, channels // vector, VECTOR=vector, ROWS=rows, BLOCK=block
    )
    return z, mean, rstd, scale, shift


def _running(of: Norm) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    assert of.running_mean is not None
    assert of.running_var is not None
    mean, rstd = of.running_mean.float(), torch.rsqrt(of.running_var.float() + of.epsilon)
    scale = (of.weight * rstd).contiguous()
    return mean, rstd, scale, (of.bias - mean * scale).contiguous()


def _statistics(x: Float[Tensor, "n b h w c"], of: Norm) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    channels = x.shape[-1]
    splits, _ = plan_statistics(x)
    parts = x.new_empty((x.shape[0], splits, 2, channels), dtype=torch.float32)
    measure(x, parts, 0)
    return merge(parts, _rows(x), channels, of, x)


def plan_statistics(x: Float[Tensor, "n b h w c"]) -> tuple[int, int]:
    """Return into how many parts the statistics of an agent are split, and the rows of each."""
    return _splits(_rows(x), STATISTICS_ROWS, PROGRAMS // x.shape[0])


def measure(x: Float[Tensor, "n b h w c"], parts: Float[Tensor, "n s 2 p"], first: int) -> None:
    """Write means and squared deviations of x into the channels of `parts` from `first` on."""
    n, channels = x.shape[0], x.shape[-1]
    block, vector = _block(channels), _vector(channels)
    splits, rows_each = plan_statistics(x)
    norm.statistics_kernel[(splits, n, triton.cdiv(channels, block))](
        x, parts[:, :, :, first:], _rows(x), rows_each, channels // vector, parts.shape[-1],
        VECTOR=vector, ROWS=8192 // block, BLOCK=block,
    )  # fmt: skip


def merge(
    parts: Float[Tensor, "n s 2 p"], num_rows: int, channels: int, of: Norm, like: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return mean, rstd, scale and shift of the first channels, and move the running statistics."""
    n, splits = parts.shape[:2]
    _, rows_each = plan_statistics(like)
    mean, rstd, scale, shift = parts.new_empty((4, n, channels))
    track = of.running_mean is not None
    running_mean, running_var = (of.running_mean, of.running_var) if track else (mean, mean)
    norm.finish_statistics_kernel[(n, triton.cdiv(channels, 16))](
        parts, of.weight, of.bias, running_mean, running_var, mean, rstd, scale, shift,
        num_rows, rows_each, splits, channels, parts.shape[-1], of.weight.stride(0), of.bias.stride(0),
        of.momentum, of.epsilon, TRACK=track, PARTS=triton.next_power_of_2(splits), BLOCK=16,
    )  # fmt: skip
    return mean, rstd, scale, shift


def _arrange(weight: Float[Tensor, "n k c t t"], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the weights as the kernels read them, forward and backward."""
    n, channels_out, channels_in, kernel, _ = weight.shape
    size = kernel * kernel * channels_in * channels_out
    forward, backward = torch.empty((2, n, size), dtype=dtype, device=weight.device)
    source = weight if weight[0].is_contiguous() else weight.contiguous()
    conv.arrange_weight_kernel[(triton.cdiv(size, 1024), n)](
        source, forward, backward, source.stride(0), kernel * kernel, channels_in, channels_out, BLOCK=1024
    )
    return forward, backward


def _convolve(
    x: Float[Tensor, "n b h w c"],
    taps: Tensor,
    size: Geometry,
    precision: str,
    residual: Float[Tensor, "n b h2 w2 k"] | None = None,
    before: tuple[Tensor, ...] | None = None,
) -> tuple[Float[Tensor, "n b h2 w2 k"], Tensor]:
    """Return conv(x) + residual; with `before` (x, scale, shift, mean, rstd), past its ReLU and with its sums."""
    n, batch = x.shape[:2]
    y = x.new_empty((n, batch, size.out_height, size.out_width, size.channels_out))
    num_rows, out_block = _rows(y), _block(size.channels_out)
    in_block = _block(size.channels_in)
    rows = 256 if in_block * out_block <= 256 and x.element_size() == 2 else 128
    tiles = triton.cdiv(num_rows, rows)
    sums = x.new_empty((n, tiles, 2, size.channels_out) if before is not None else (1,), dtype=torch.float32)
    conv.product_kernel[(tiles, n, triton.cdiv(size.channels_out, out_block))](
        x, taps, x if residual is None else residual, *(before or (x,) * 5), y, sums,
        num_rows, **size.arguments(precision), RESIDUAL=residual is not None, BACKWARD=before is not None,
        ROWS=rows, IN_BLOCK=in_block, IN_BLOCKS=triton.cdiv(size.channels_in, in_block),
        PARTIAL=size.channels_in % in_block > 0, OUT_BLOCK=out_block,
    )  # fmt: skip
    return y, sums


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
        taps, back_taps = _arrange(weight, x.dtype)
        z, *prepared = normalise(x, of) if of is not None else (x, None, None, None, None)
        y, _ = _convolve(z, taps, size, precision, residual)
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
        dweight = _weight_gradient(ctx.size, z, dy, ctx.precision) if ctx.needs_input_grad[1] else None
        dx = dnorm_weight = dnorm_bias = None
        if scale is not None:
            before = (x, scale, shift, mean, rstd)
            dz, sums = _convolve(_spread(dy, ctx.size), taps, ctx.size.backward(), ctx.precision, before=before)
            dnorm_weight, dnorm_bias = _norm_gradient(sums)
            dx = _past_norm(dz, before, dnorm_weight, dnorm_bias, passed, training=ctx.training)
        elif ctx.needs_input_grad[0]:
            dx, _ = _convolve(_spread(dy, ctx.size), taps, ctx.size.backward(), ctx.precision, residual=passed)
        return dx, dweight, dnorm_weight, dnorm_bias, dy if ctx.has_residual else None, *[None] * 4


def _spread(dy: Float[Tensor, "n b h w c"], size: Geometry) -> Float[Tensor, "n b h2 w2 c"]:
    """Put zeros between the pixels of a strided convolution's output, so that a plain one carries it back."""
    if size.stride == 1:
        return dy
    back = size.backward()
    spread = dy.new_zeros((*dy.shape[:2], back.height, back.width, dy.shape[-1]))
    spread[:, :, :: size.stride, :: size.stride] = dy
    return spread


def _norm_gradient(sums: Float[Tensor, "n t 2 c"]) -> tuple[Tensor, Tensor]:
    """Return the gradients of BatchNorm's weight and bias."""
    n, tiles, _, channels = sums.shape
    dweight, dbias = sums.new_empty((2, n, channels))
    norm.finish_gradient_kernel[(n, triton.cdiv(channels, 16))](
        sums, dweight, dbias, tiles, channels, PARTS=min(512, triton.next_power_of_2(tiles)), BLOCK=16, num_warps=16
    )
    return dweight, dbias


def _past_norm(
    dz: Tensor, before: tuple[Tensor, ...], dweight: Tensor, dbias: Tensor, passed: Tensor | None, *, training: bool
) -> Tensor:
    """Return the gradient of x; it takes the place of dz, which nothing else reads."""
    x, scale, _, mean, rstd = before
    n, num_rows, channels = x.shape[0], _rows(x), x.shape[-1]
    block, vector = _block(channels), _vector(channels)
    rows = 8192 // block
    norm.input_gradient_kernel[(triton.cdiv(num_rows, rows), n, triton.cdiv(channels, block))](
        dz, x, scale, mean, rstd, dweight, dbias, dz if passed is None else passed, dz,
        num_rows, channels // vector, VECTOR=vector, TRAINING=training, PASSED=passed is not None,
        ROWS=rows, BLOCK=block,
    )  # fmt: skip
    return dz


def _weight_gradient(size: Geometry, z: Tensor, dy: Tensor, precision: str) -> Tensor:
    """Return [n, k, c, kernel, kernel] in float32."""
    n, num_rows = z.shape[0], _rows(dy)
    out_block = _block(size.channels_out)
    # Three accumulators of window x out_block must fit into the registers; a window that is cut is cut at a tap.
    window = min(64 if size.channels_in == 64 else 128, 4096 // out_block, _block(size.kernel * size.channels_in, 128))
    out_blocks = triton.cdiv(size.channels_out, out_block)
    blocks = triton.cdiv(size.kernel * size.channels_in, window) * out_blocks
    rows, stages = (64, 3) if window * out_block <= 1024 else (32, 4)
    if z.element_size() > 2:
        rows, stages = 32, 1
    splits, rows_each = _splits(num_rows, rows, GRADIENT_PROGRAMS // (n * blocks))
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
