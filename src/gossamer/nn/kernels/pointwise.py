"""Triton kernels of the 1 x 1 convolution of relu(scale x + shift), on the first channels of a wider buffer.

A pixel's channels are read once here, so the norm and the ReLU are applied on the way and never stored. Rows of the
buffer are `stride` numbers apart, a multiple of VECTOR. A program may read channels past `count`, up to the row's end:
their scale and shift are zero, and what lies there is finite. Weights come arranged, padded with zeros to whole blocks,
so that no load of them needs a mask.
"""

import triton
import triton.language as tl


@triton.jit
def _affine(scale, shift, agent, channels, count):
    """Load scale and shift of some channels, zero past the last."""
    a = tl.load(scale + agent * count + channels, mask=channels < count, other=0.0)
    b = tl.load(shift + agent * count + channels, mask=channels < count, other=0.0)
    return a[None, :], b[None, :]


@triton.jit
def forward_kernel(
    x, scale, shift, weight, y, num_rows, stride_vectors, count, count_out,
    VECTOR: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, OUT_BLOCK: tl.constexpr,
):  # fmt: skip
    """y = relu(scale x + shift) W for a tile of pixels, W being [channel in, channel out]."""
    agent = tl.program_id(1).to(tl.int64)
    stride = stride_vectors * VECTOR
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    out_channels = tl.arange(0, OUT_BLOCK)
    x += agent * num_rows * stride + rows[:, None] * stride
    weight += agent * BLOCKS * BLOCK * OUT_BLOCK + out_channels[None, :]
    total = tl.zeros((ROWS, OUT_BLOCK), tl.float32)
    for block in range(BLOCKS):
        channels = block * BLOCK + tl.arange(0, BLOCK)
        a, b = _affine(scale, shift, agent, channels, count)
        values = tl.load(
            x + channels[None, :], mask=(rows < num_rows)[:, None] & (channels < stride)[None, :], other=0.0
        )
        z = tl.maximum(values.to(tl.float32) * a + b, 0.0).to(values.dtype)
        w = tl.load(weight + channels[:, None] * OUT_BLOCK)
        total = tl.dot(z, w, total, input_precision=PRECISION)
    target = agent * num_rows * count_out + rows[:, None] * count_out + out_channels[None, :]
    store = (rows < num_rows)[:, None] & (out_channels < count_out)[None, :]
    tl.store(y + target, total.to(y.dtype.element_ty), mask=store)


@triton.jit
def backward_kernel(
    x, scale, shift, mean, rstd, weight, dy, dweight, dbias, dx, sums,
    num_rows, stride_vectors, count, count_out,
    VECTOR: tl.constexpr, PRECISION: tl.constexpr, SUMS: tl.constexpr, TRAINING: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, OUT_BLOCK: tl.constexpr,
):  # fmt: skip
    """With SUMS, the sums over a tile that BatchNorm's gradient needs; without, that gradient, added to dx.

    The product with the weights is taken both times: it is cheaper than to write it down and read it again.
    """
    agent = tl.program_id(1).to(tl.int64)
    stride = stride_vectors * VECTOR
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channels = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    out_channels = tl.arange(0, OUT_BLOCK)
    in_range, alive, of_agent = channels < count, rows < num_rows, agent * count + channels
    at = agent * num_rows * count_out + rows[:, None] * count_out + out_channels[None, :]
    d = tl.load(dy + at, mask=alive[:, None] & (out_channels < count_out)[None, :], other=0.0)
    w = tl.load(weight + (agent * OUT_BLOCK + out_channels[:, None]) * BLOCKS * BLOCK + channels[None, :])
    dz = tl.dot(d, w, input_precision=PRECISION)
    at = agent * num_rows * stride + rows[:, None] * stride + channels[None, :]
    valid = alive[:, None] & (channels < stride)[None, :]
    values = tl.load(x + at, mask=valid, other=0.0).to(tl.float32)
    a, b = _affine(scale, shift, agent, channels, count)
    dz = tl.where(valid & (values * a + b > 0), dz, 0.0)
    centre = tl.load(mean + of_agent, mask=in_range, other=0.0)
    inverse = tl.load(rstd + of_agent, mask=in_range, other=0.0)
    hat = (values - centre[None, :]) * inverse[None, :]
    if SUMS:
        part = (agent * tl.num_programs(0) + tl.program_id(0)) * 2 * count + channels
        tl.store(sums + part, tl.sum(dz, axis=0), mask=in_range)
        tl.store(sums + part + count, tl.sum(dz * hat, axis=0), mask=in_range)
    else:
        if TRAINING:
            first = tl.load(dbias + of_agent, mask=in_range, other=0.0) / num_rows
            second = tl.load(dweight + of_agent, mask=in_range, other=0.0) / num_rows
            dz = dz - first[None, :] - hat * second[None, :]
        total = tl.load(dx + at, mask=valid, other=0.0).to(tl.float32) + a * dz
        tl.store(dx + at, total.to(dx.dtype.element_ty), mask=valid)


@triton.jit
def weight_gradient_kernel(
    x, scale, shift, dy, parts, num_rows, rows_each, stride_vectors, count, count_out,
    VECTOR: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, OUT_BLOCK: tl.constexpr,
):  # fmt: skip
    """parts[agent, split, channel in, channel out] = sum over a stretch of pixels of relu(scale x + shift)^T dy."""
    split, agent = tl.program_id(0), tl.program_id(1).to(tl.int64)
    stride = stride_vectors * VECTOR
    channels = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    out_channels = tl.arange(0, OUT_BLOCK)
    x += agent * num_rows * stride + channels[None, :]
    dy += agent * num_rows * count_out + out_channels[None, :]
    a, b = _affine(scale, shift, agent, channels, count)
    total = tl.zeros((BLOCK, OUT_BLOCK), tl.float32)
    for start in range(split * rows_each, min((split + 1) * rows_each, num_rows), ROWS):
        rows = start + tl.arange(0, ROWS)
        alive = (rows < num_rows)[:, None]
        values = tl.load(x + rows[:, None] * stride, mask=alive & (channels < stride)[None, :], other=0.0)
        d = tl.load(dy + rows[:, None] * count_out, mask=alive & (out_channels < count_out)[None, :], other=0.0)
        z = tl.maximum(values.to(tl.float32) * a + b, 0.0).to(values.dtype)
        total = tl.dot(tl.trans(z), d, total, input_precision=PRECISION)
    parts += (agent * tl.num_programs(0) + split) * count * count_out
    at = channels[:, None] * count_out + out_channels[None, :]
    tl.store(parts + at, total, mask=(channels < count)[:, None] & (out_channels < count_out)[None, :])


@triton.jit
def arrange_weight_kernel(
    weight, forward, backward, weight_stride, count, count_out, WIDTH: tl.constexpr, OUT_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Turn a module's [channel out, channel in] into [in, out] and [out, in], padded with zeros."""
    agent = tl.program_id(1).to(tl.int64)
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    out_channel, channel = index // WIDTH, index % WIDTH
    valid = (out_channel < count_out) & (channel < count)
    value = tl.load(weight + agent * weight_stride + out_channel * count + channel, mask=valid, other=0.0)
    value = value.to(forward.dtype.element_ty)
    inside = index < WIDTH * OUT_BLOCK
    tl.store(forward + agent * WIDTH * OUT_BLOCK + channel * OUT_BLOCK + out_channel, value, mask=inside)
    tl.store(backward + agent * WIDTH * OUT_BLOCK + index, value, mask=inside)
