"""BatchNorm and ReLU of stacked agents: statistics, forward and backward pass."""

from dataclasses import dataclass

import torch
import triton

from gossamer.nn.kernels import normalisation as norm
from gossamer.nn.kernels.sizes import PROGRAMS, STATISTICS_ROWS, block_of, num_rows_of, split_rows, vector_of
from gossamer.shapes import Float, Tensor


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


def normalise(x: Float[Tensor, "n b h w c"], of: Norm) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return relu(norm(x)), and mean, rstd, scale and shift, each [n, c]."""
    n, num_rows, channels = x.shape[0], num_rows_of(x), x.shape[-1]
    block, vector = block_of(channels), vector_of(channels)
    mean, rstd, scale, shift = batch_affine(x, of) if of.training else running_affine(of)
    z, rows = torch.empty_like(x), 8192 // block
    norm.apply_kernel[(triton.cdiv(num_rows, rows), n, triton.cdiv(channels, block))](
        x, scale, shift, z, num_rows, channels // vector, VECTOR=vector, ROWS=rows, BLOCK=block
    )
    return z, mean, rstd, scale, shift


def running_affine(of: Norm) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return mean, rstd, scale and shift from the running statistics."""
    assert of.running_mean is not None
    assert of.running_var is not None
    mean, rstd = of.running_mean.float(), torch.rsqrt(of.running_var.float() + of.epsilon)
    scale = (of.weight * rstd).contiguous()
    return mean, rstd, scale, (of.bias - mean * scale).contiguous()


def batch_affine(x: Float[Tensor, "n b h w c"], of: Norm) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return mean, rstd, scale and shift from the batch, and update the running statistics."""
    channels = x.shape[-1]
    splits, _ = plan_statistics(x)
    parts = x.new_empty((x.shape[0], splits, 2, channels), dtype=torch.float32)
    measure(x, parts, 0)
    return merge(parts, num_rows_of(x), channels, of, x)


def plan_statistics(x: Float[Tensor, "n b h w c"]) -> tuple[int, int]:
    """Return into how many parts the statistics of an agent are split, and the rows of each."""
    return split_rows(num_rows_of(x), STATISTICS_ROWS, PROGRAMS // x.shape[0])


def measure(x: Float[Tensor, "n b h w c"], parts: Float[Tensor, "n s 2 p"], first: int) -> None:
    """Write means and squared deviations of x into the channels of `parts` from `first` on."""
    n, channels = x.shape[0], x.shape[-1]
    block, row = block_of(channels), x.stride(3)
    vector = vector_of(channels, row)
    splits, rows_each = plan_statistics(x)
    norm.statistics_kernel[(splits, n, triton.cdiv(channels, block))](
        x, parts[:, :, :, first:], num_rows_of(x), rows_each, row // vector, channels, parts.shape[-1],
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


def norm_gradient(sums: Float[Tensor, "n t 2 c"]) -> tuple[Tensor, Tensor]:
    """Return the gradients of BatchNorm's weight and bias."""
    n, tiles, _, channels = sums.shape
    dweight, dbias = sums.new_empty((2, n, channels))
    norm.finish_gradient_kernel[(n, triton.cdiv(channels, 16))](
        sums, dweight, dbias, tiles, channels, PARTS=min(512, triton.next_power_of_2(tiles)), BLOCK=16, num_warps=16
    )
    return dweight, dbias


def past_norm(
    dz: Tensor, before: tuple[Tensor, ...], dweight: Tensor, dbias: Tensor, passed: Tensor | None, *, training: bool
) -> Tensor:
    """Return the gradient of x; it takes the place of dz, which nothing else reads."""
    x, scale, _, mean, rstd = before
    n, num_rows, channels = x.shape[0], num_rows_of(x), x.shape[-1]
    block, vector = block_of(channels), vector_of(channels)
    rows = 8192 // block
    norm.input_gradient_kernel[(triton.cdiv(num_rows, rows), n, triton.cdiv(channels, block))](
        dz, x, scale, mean, rstd, dweight, dbias, dz if passed is None else passed, dz,
        num_rows, channels // vector, VECTOR=vector, TRAINING=training, PASSED=passed is not None,
        ROWS=rows, BLOCK=block,
    )  # fmt: skip
    return dz
