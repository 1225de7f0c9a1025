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
    # The first pixel's place has 64 bits, which many images in wide rows need.
    x += (agent * num_rows + tl.program_id(0) * ROWS) * stride + tl.arange(0, ROWS)[:, None] * stride
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
    x, scale, shift, mean, rstd, weight, dy, dx, parts, sums,
    num_rows, rows_each, stride_vectors, count, count_out,
    VECTOR: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, OUT_BLOCK: tl.constexpr,
):  # fmt: skip
    """For a stretch of pixels, in one pass: dx += scale dz; the weights' gradient; the two sums that BatchNorm needs.

    What BatchNorm subtracts from dz is left to settle_kernel, because it needs the sums of all stretches.
    """
    split, agent = tl.program_id(0), tl.program_id(1).to(tl.int64)
    stride = stride_vectors * VECTOR
    channels = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    out_channels = tl.arange(0, OUT_BLOCK)
    in_range, of_agent = channels < count, agent * count + channels
    in_row, in_output = (channels < stride)[None, :], (out_channels < count_out)[None, :]
    x += agent * num_rows * stride + channels[None, :]
    dx += agent * num_rows * stride + channels[None, :]
    dy += agent * num_rows * count_out + out_channels[None, :]
    w = tl.load(weight + (agent * OUT_BLOCK + out_channels[:, None]) * BLOCKS * BLOCK + channels[None, :])
    a, b = _affine(scale, shift, agent, channels, count)
    centre = tl.load(mean + of_agent, mask=in_range, other=0.0)[None, :]
    inverse = tl.load(rstd + of_agent, mask=in_range, other=0.0)
    total = tl.zeros((BLOCK, OUT_BLOCK), tl.float32)
    first = tl.zeros((ROWS, BLOCK), tl.float32)  # added up over the rows at the end: threads need not meet before
    second = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(split * rows_each, min((split + 1) * rows_each, num_rows), ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        valid = (rows < num_rows) & in_row
        d = tl.load(dy + rows * count_out, mask=(rows < num_rows) & in_output, other=0.0)
        values = tl.load(x + rows * stride, mask=valid, other=0.0)
        before = tl.load(dx + rows * stride, mask=valid, other=0.0)
        z = tl.maximum(values.to(tl.float32) * a + b, 0.0)
        total = tl.dot(tl.trans(z.to(values.dtype)), d, total, input_precision=PRECISION)
        dz = tl.where(z > 0, tl.dot(d, w, input_precision=PRECISION), 0.0)
        first += dz
        second += dz * (values.to(tl.float32) - centre)
        tl.store(dx + rows * stride, (before.to(tl.float32) + a * dz).to(before.dtype), mask=valid)
    part = agent * tl.num_programs(0) + split
    tl.store(sums + part * 2 * count + channels, tl.sum(first, axis=0), mask=in_range)
    tl.store(sums + (part * 2 + 1) * count + channels, tl.sum(second, axis=0) * inverse, mask=in_range)
    at = part * count * count_out + channels[:, None] * count_out + out_channels[None, :]
    tl.store(parts + at, total, mask=in_range[:, None] & in_output)


@triton.jit
def settle_kernel(
    dx, x, mean, offset, slope, y, num_rows, stride, first, count, mean_stride, pending_stride,
    CENTRED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y = dx - offset - slope (x - mean) for `count` channels from `first` on: what all norms on them subtract."""
    agent = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    channels = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    in_range = channels < count
    valid = (rows < num_rows) & in_range[None, :]
    at = (agent * num_rows + rows) * stride + first + channels[None, :]
    value = tl.load(dx + at, mask=valid, other=0.0).to(tl.float32)
    if CENTRED:
        centre = tl.load(mean + agent * mean_stride + first + channels, mask=in_range, other=0.0)
        pending = agent * pending_stride + first + channels
        value -= tl.load(offset + pending, mask=in_range, other=0.0)[None, :]
        hat = tl.load(x + at, mask=valid, other=0.0).to(tl.float32) - centre[None, :]
        value -= hat * tl.load(slope + pending, mask=in_range, other=0.0)[None, :]
    target = (agent * num_rows + rows) * count + channels[None, :]
    tl.store(y + target, value.to(y.dtype.element_ty), mask=valid)


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
