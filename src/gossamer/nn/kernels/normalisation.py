"""Triton kernels of BatchNorm over stacked agents: statistics in, gradients out, activations [agent, pixel, channel].

Means and squared deviations are taken tile by tile and merged by Chan's rule, in float32 and in a fixed order: no
cancellation as in E[x^2] - E[x]^2, and the same bytes at every run.
"""

import triton
import triton.language as tl


@triton.jit
def statistics_kernel(
    x, parts, num_rows, rows_each, row_vectors, count, parts_count,
    VECTOR: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """parts[agent, split] = (mean, sum of squared deviations) of a stretch of pixels.

    Pixels may lie in wider rows, and parts may be of more channels.
    """
    split, agent = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row = row_vectors * VECTOR
    channels = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    in_range = channels < count
    x += agent * num_rows * row
    mean = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    seen = 0
    end = min((split + 1) * rows_each, num_rows)
    for start in range(split * rows_each, end, ROWS):
        rows = start + tl.arange(0, ROWS)
        valid = (rows < end)[:, None] & in_range[None, :]
        values = tl.load(x + rows[:, None] * row + channels[None, :], mask=valid, other=0.0).to(tl.float32)
        here = min(ROWS, end - start)
        tile_mean = tl.sum(values, axis=0) / here
        deviation = tl.where(valid, values - tile_mean[None, :], 0.0)
        shift = tile_mean - mean
        share = here / (seen + here)
        mean += shift * share
        squares += tl.sum(deviation * deviation, axis=0) + shift * shift * (seen * share)
        seen += here
    at = (agent * tl.num_programs(0) + split) * 2 * parts_count + channels
    tl.store(parts + at, mean, mask=in_range)
    tl.store(parts + at + parts_count, squares, mask=in_range)


@triton.jit
def finish_statistics_kernel(
    parts, weight, bias, running_mean, running_var, mean, rstd, scale, shift,
    num_rows, rows_each, num_parts, count, parts_count, weight_stride, bias_stride, momentum, epsilon,
    TRACK: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Merge the parts; scale = weight * rstd, shift = bias - mean * scale; move the running statistics."""
    agent = tl.program_id(0).to(tl.int64)
    channels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    in_range = channels < count
    index = tl.arange(0, PARTS)
    valid = (index < num_parts)[:, None] & in_range[None, :]
    at = (agent * num_parts + index)[:, None] * 2 * parts_count + channels[None, :]
    means = tl.load(parts + at, mask=valid, other=0.0)
    squares = tl.load(parts + at + parts_count, mask=valid, other=0.0)
    size = tl.minimum(rows_each, tl.maximum(num_rows - index * rows_each, 0)).to(tl.float32)
    centre = tl.sum(means * size[:, None], axis=0) / num_rows
    deviation = tl.where(valid, means - centre[None, :], 0.0)
    variance = (tl.sum(squares, axis=0) + tl.sum(deviation * deviation * size[:, None], axis=0)) / num_rows
    inverse = 1.0 / tl.sqrt(variance + epsilon)
    a = tl.load(weight + agent * weight_stride + channels, mask=in_range, other=0.0) * inverse
    b = tl.load(bias + agent * bias_stride + channels, mask=in_range, other=0.0) - centre * a
    out = agent * count + channels
    tl.store(mean + out, centre, mask=in_range)
    tl.store(rstd + out, inverse, mask=in_range)
    tl.store(scale + out, a, mask=in_range)
    tl.store(shift + out, b, mask=in_range)
    if TRACK:
        unbiased = variance * (num_rows / tl.maximum(num_rows - 1, 1))
        old_mean = tl.load(running_mean + out, mask=in_range, other=0.0)
        old_var = tl.load(running_var + out, mask=in_range, other=0.0)
        tl.store(running_mean + out, old_mean + momentum * (centre - old_mean), mask=in_range)
        tl.store(running_var + out, old_var + momentum * (unbiased - old_var), mask=in_range)


@triton.jit
def apply_kernel(
    x, scale, shift, z, num_rows, vectors, VECTOR: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """z = relu(scale x + shift)."""
    agent = tl.program_id(1).to(tl.int64)
    count = vectors * VECTOR
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channels = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    in_range = channels < count
    valid = (rows < num_rows)[:, None] & in_range[None, :]
    at = agent * num_rows * count + rows[:, None] * count + channels[None, :]
    a = tl.load(scale + agent * count + channels, mask=in_range, other=0.0)
    b = tl.load(shift + agent * count + channels, mask=in_range, other=0.0)
    value = tl.load(x + at, mask=valid, other=0.0).to(tl.float32) * a[None, :] + b[None, :]
    tl.store(z + at, tl.maximum(value, 0.0).to(z.dtype.element_ty), mask=valid)


@triton.jit
def finish_gradient_kernel(
    sums, dweight, dbias, num_parts, count, PARTS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Add up sum(dz) and sum(dz * xhat) over the tiles, PARTS at a time."""
    agent = tl.program_id(0).to(tl.int64)
    channels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    in_range = channels < count
    first = tl.zeros((BLOCK,), tl.float32)
    second = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, num_parts, PARTS):
        index = start + tl.arange(0, PARTS)
        valid = (index < num_parts)[:, None] & in_range[None, :]
        at = (agent * num_parts + index)[:, None] * 2 * count + channels[None, :]
        first += tl.sum(tl.load(sums + at, mask=valid, other=0.0), axis=0)
        second += tl.sum(tl.load(sums + at + count, mask=valid, other=0.0), axis=0)
    out = agent * count + channels
    tl.store(dbias + out, first, mask=in_range)
    tl.store(dweight + out, second, mask=in_range)


@triton.jit
def input_gradient_kernel(
    dz, x, scale, mean, rstd, dweight, dbias, passed, dx,
    num_rows, vectors, VECTOR: tl.constexpr, TRAINING: tl.constexpr, PASSED: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx = scale (dz - mean(dz) - xhat mean(dz xhat)), plus what came around the layer."""
    agent = tl.program_id(1).to(tl.int64)
    count = vectors * VECTOR
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channels = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    in_range = channels < count
    valid = (rows < num_rows)[:, None] & in_range[None, :]
    at = agent * num_rows * count + rows[:, None] * count + channels[None, :]
    of_agent = agent * count + channels
    value = tl.load(dz + at, mask=valid, other=0.0).to(tl.float32)
    if TRAINING:
        inverse = tl.load(rstd + of_agent, mask=in_range, other=0.0)
        centre = tl.load(mean + of_agent, mask=in_range, other=0.0)
        hat = (tl.load(x + at, mask=valid, other=0.0).to(tl.float32) - centre[None, :]) * inverse[None, :]
        second = tl.load(dweight + of_agent, mask=in_range, other=0.0) / num_rows
        first = tl.load(dbias + of_agent, mask=in_range, other=0.0) / num_rows
        value = value - first[None, :] - hat * second[None, :]
    value = value * tl.load(scale + of_agent, mask=in_range, other=0.0)[None, :]
    if PASSED:
        value += tl.load(passed + at, mask=valid, other=0.0).to(tl.float32)
    tl.store(dx + at, value.to(dx.dtype.element_ty), mask=valid)
