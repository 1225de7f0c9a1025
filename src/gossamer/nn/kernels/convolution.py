"""Triton kernels of the convolutions of stacked agents.

Layout: activations are [agent, image, row, column, channel] and weights [agent, tap, channel in, channel out], both
contiguous. One program works on a tile of pixels of one agent, as an implicit matrix product: for each row of the
kernel, what a pixel sees (KERNEL columns of channels) is one contiguous window in memory. Sums go through float32 and
partial results that are added up in a fixed order, so that the same input gives the same bytes.

A channel count is passed as count // VECTOR and VECTOR, so that the compiler knows how wide it may load without a
compilation for every count (DenseNet has fifty of them).
"""

import triton
import triton.language as tl


@triton.jit
def product_kernel(
    x, weight, residual, before, scale, shift, mean, rstd, y, sums,
    num_rows, row_vectors, in_vectors, out_vectors,
    IN_VECTOR: tl.constexpr, OUT_VECTOR: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    KERNEL: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, SPREAD: tl.constexpr,
    RESIDUAL: tl.constexpr, BACKWARD: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, IN_BLOCK: tl.constexpr, IN_BLOCKS: tl.constexpr, PARTIAL: tl.constexpr,
    OUT_BLOCK: tl.constexpr, OUT_BLOCKS: tl.constexpr,
):  # fmt: skip
    """y = conv(x) + residual for a tile of output pixels; pixels of y may lie in wider rows.

    SPREAD: x is read as if SPREAD - 1 zeros lay between its pixels, as it takes to carry a strided convolution back.
    BACKWARD: x is the gradient of a convolution's output, the weights are transposed and flipped, and y is the
    gradient of relu(scale before + shift) past the ReLU, along with its two sums that BatchNorm needs.
    """
    agent = tl.program_id(1).to(tl.int64)
    count_in, count_out = in_vectors * IN_VECTOR, out_vectors * OUT_VECTOR
    # Programs that read the same pixels follow one another, and find them in the cache.
    tile, tiles = tl.program_id(0) // OUT_BLOCKS, tl.num_programs(0) // OUT_BLOCKS
    rows = tile * ROWS + tl.arange(0, ROWS)
    channels = (tl.program_id(0) % OUT_BLOCKS) * OUT_BLOCK + tl.arange(0, OUT_BLOCK)
    in_range = channels < count_out
    image, out_row, out_column = rows // (OUT_HEIGHT * OUT_WIDTH), (rows // OUT_WIDTH) % OUT_HEIGHT, rows % OUT_WIDTH
    # What does not depend on the tap is worked out once: the loop below adds a number to a pointer.
    top, left = out_row * STRIDE - PADDING, tl.where(rows < num_rows, out_column * STRIDE - PADDING, WIDTH)
    X_HEIGHT: tl.constexpr = (HEIGHT + SPREAD - 1) // SPREAD
    X_WIDTH: tl.constexpr = (WIDTH + SPREAD - 1) // SPREAD
    x += agent * (num_rows // (OUT_HEIGHT * OUT_WIDTH)) * X_HEIGHT * X_WIDTH * count_in
    corner = x + (((image * HEIGHT + top) * WIDTH + left) * count_in)[:, None] + tl.arange(0, IN_BLOCK)[None, :]
    weight += agent * KERNEL * KERNEL * count_in * count_out
    taps = weight + tl.arange(0, IN_BLOCK)[:, None] * count_out + channels[None, :]
    total = tl.zeros((ROWS, OUT_BLOCK), tl.float32)
    for part in range(KERNEL * KERNEL * IN_BLOCKS):
        tap, first = part // IN_BLOCKS, (part % IN_BLOCKS) * IN_BLOCK
        row, column = top + tap // KERNEL, left + tap % KERNEL
        inside = ((row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH))[:, None]
        w_mask = in_range[None, :]
        if PARTIAL:
            of_input = first + tl.arange(0, IN_BLOCK) < count_in
            inside, w_mask = inside & of_input[None, :], w_mask & of_input[:, None]
        if SPREAD > 1:
            inside = inside & ((row % SPREAD == 0) & (column % SPREAD == 0))[:, None]
            pixel = (image * X_HEIGHT + row // SPREAD) * X_WIDTH + column // SPREAD
            channel = first + tl.arange(0, IN_BLOCK)[None, :]
            seen = tl.load(x + (pixel * count_in)[:, None] + channel, mask=inside, other=0.0)
        else:
            step = ((tap // KERNEL) * WIDTH + tap % KERNEL) * count_in + first
            seen = tl.load(corner + step, mask=inside, other=0.0)
        w = tl.load(taps + (tap * count_in + first) * count_out, mask=w_mask, other=0.0)
        total = tl.dot(seen, w, total, input_precision=PRECISION)
    at = agent * num_rows * count_out + rows[:, None] * count_out + channels[None, :]
    valid = (rows < num_rows)[:, None] & in_range[None, :]
    if RESIDUAL:
        total += tl.load(residual + at, mask=valid, other=0.0).to(tl.float32)
    if BACKWARD:
        values = tl.load(before + at, mask=valid, other=0.0).to(tl.float32)
        of_agent = agent * count_out + channels
        a = tl.load(scale + of_agent, mask=in_range, other=0.0)
        b = tl.load(shift + of_agent, mask=in_range, other=0.0)
        centre = tl.load(mean + of_agent, mask=in_range, other=0.0)
        inverse = tl.load(rstd + of_agent, mask=in_range, other=0.0)
        total = tl.where(valid & (values * a[None, :] + b[None, :] > 0), total, 0.0)
        hat = (values - centre[None, :]) * inverse[None, :]
        part = (agent * tiles + tile) * 2 * count_out + channels
        tl.store(sums + part, tl.sum(total, axis=0), mask=in_range)
        tl.store(sums + part + count_out, tl.sum(total * hat, axis=0), mask=in_range)
    target = (agent * num_rows + rows[:, None]) * (row_vectors * OUT_VECTOR) + channels[None, :]
    tl.store(y + target, total.to(y.dtype.element_ty), mask=valid)


@triton.jit
def weight_gradient_kernel(
    x, dy, parts,
    num_rows, rows_each, in_vectors, out_vectors,
    IN_VECTOR: tl.constexpr, OUT_VECTOR: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    KERNEL: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, WINDOW: tl.constexpr, OUT_BLOCK: tl.constexpr, OUT_BLOCKS: tl.constexpr,
):  # fmt: skip
    """parts[agent, split] = sum over a stretch of pixels of window^T dy; the kernel's rows share one read of dy."""
    split, agent = tl.program_id(0), tl.program_id(1).to(tl.int64)
    count_in, count_out = in_vectors * IN_VECTOR, out_vectors * OUT_VECTOR
    window = (tl.program_id(2) // OUT_BLOCKS) * WINDOW + tl.arange(0, WINDOW)
    channels = (tl.program_id(2) % OUT_BLOCKS) * OUT_BLOCK + tl.arange(0, OUT_BLOCK)
    in_range = channels < count_out
    x += agent * (num_rows // (OUT_HEIGHT * OUT_WIDTH)) * HEIGHT * WIDTH * count_in + window[None, :]
    dy += agent * num_rows * count_out + channels[None, :]
    kernel_column, in_window = (window // count_in)[None, :], (window < KERNEL * count_in)[None, :]
    upper = tl.zeros((WINDOW, OUT_BLOCK), tl.float32)
    middle = tl.zeros((WINDOW, OUT_BLOCK), tl.float32)
    lower = tl.zeros((WINDOW, OUT_BLOCK), tl.float32)
    for start in range(split * rows_each, min((split + 1) * rows_each, num_rows), ROWS):
        rows = start + tl.arange(0, ROWS)
        alive = rows < num_rows
        image, out_row = rows // (OUT_HEIGHT * OUT_WIDTH), (rows // OUT_WIDTH) % OUT_HEIGHT
        top, left = out_row * STRIDE - PADDING, (rows % OUT_WIDTH) * STRIDE - PADDING
        d = tl.load(dy + rows[:, None] * count_out, mask=alive[:, None] & in_range[None, :], other=0.0)
        corner = x + (((image * HEIGHT + top) * WIDTH + left) * count_in)[:, None]
        column = left[:, None] + kernel_column
        inside = (column >= 0) & (column < WIDTH) & in_window
        seen = tl.load(corner, mask=inside & (alive & (top >= 0) & (top < HEIGHT))[:, None], other=0.0)
        upper = tl.dot(tl.trans(seen), d, upper, input_precision=PRECISION)
        if KERNEL == 3:
            valid = inside & (alive & (top >= -1) & (top < HEIGHT - 1))[:, None]
            seen = tl.load(corner + WIDTH * count_in, mask=valid, other=0.0)
            middle = tl.dot(tl.trans(seen), d, middle, input_precision=PRECISION)
            valid = inside & (alive & (top >= -2) & (top < HEIGHT - 2))[:, None]
            seen = tl.load(corner + 2 * WIDTH * count_in, mask=valid, other=0.0)
            lower = tl.dot(tl.trans(seen), d, lower, input_precision=PRECISION)
    of_row = KERNEL * count_in * count_out
    parts += (agent * tl.num_programs(0) + split) * KERNEL * of_row
    at = window[:, None] * count_out + channels[None, :]
    valid = (window < KERNEL * count_in)[:, None] & in_range[None, :]
    tl.store(parts + at, upper, mask=valid)
    if KERNEL == 3:
        tl.store(parts + of_row + at, middle, mask=valid)
        tl.store(parts + 2 * of_row + at, lower, mask=valid)


@triton.jit
def finish_weight_gradient_kernel(
    parts, dweight, num_splits, taps, count_in, count_out, SPLITS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Add up the splits, and turn [tap, channel in, channel out] into a module's [channel out, channel in, tap]."""
    agent = tl.program_id(1).to(tl.int64)
    size = taps * count_in * count_out
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    splits = tl.arange(0, SPLITS)
    at = (agent * num_splits + splits)[:, None] * size + index[None, :]
    values = tl.load(parts + at, mask=(splits < num_splits)[:, None] & (index < size)[None, :], other=0.0)
    tap, channel, out_channel = index // (count_in * count_out), (index // count_out) % count_in, index % count_out
    target = agent * size + (out_channel * count_in + channel) * taps + tap
    tl.store(dweight + target, tl.sum(values, axis=0), mask=index < size)


@triton.jit
def arrange_weight_kernel(
    weight, forward, backward, agent_stride, taps, count_in, count_out, BLOCK: tl.constexpr
):  # fmt: skip
    """Turn a module's [channel out, channel in, tap] into [tap, in, out], and into [flipped tap, out, in]."""
    agent = tl.program_id(1).to(tl.int64)
    size = taps * count_in * count_out
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tap, channel, out_channel = index // (count_in * count_out), (index // count_out) % count_in, index % count_out
    source = weight + agent * agent_stride + (out_channel * count_in + channel) * taps + tap
    value = tl.load(source, mask=index < size, other=0.0).to(forward.dtype.element_ty)
    tl.store(forward + agent * size + index, value, mask=index < size)
    flipped = ((taps - 1 - tap) * count_out + out_channel) * count_in + channel
    tl.store(backward + agent * size + flipped, value, mask=index < size)
