"""Triton kernels of plain 3 x 3 convolutions, stride 1 and padding 1, which load a pixel three times in place of nine.

A program takes one row of ROWS / WIDTH images at a time, which fills its lanes. What it loads, that row shifted by one
tap, serves three output rows, those above, beside and below, whose sums it holds: nine products for three loads. Layout
and what is computed are as in convolution.py, and a pixel's nine products are added up in the same order.
"""

import triton
import triton.language as tl


@triton.jit
def _three_taps(at, size, mask):
    """Load the weights of three taps that follow one another."""
    left = tl.load(at, mask=mask, other=0.0)
    centre = tl.load(at + size, mask=mask, other=0.0)
    right = tl.load(at + 2 * size, mask=mask, other=0.0)
    return left, centre, right


@triton.jit
def strip_kernel(
    x, weight, residual, before, scale, shift, mean, rstd, y, sums,
    num_images, row_vectors, out_vectors,
    COUNT_IN: tl.constexpr, OUT_VECTOR: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    RESIDUAL: tl.constexpr, BACKWARD: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, STRIP: tl.constexpr,
    IN_BLOCK: tl.constexpr, OUT_BLOCK: tl.constexpr, OUT_BLOCKS: tl.constexpr,
):  # fmt: skip
    """As product_kernel, for ROWS // WIDTH images and STRIP rows of them, from the top down."""
    agent = tl.program_id(1).to(tl.int64)
    IMAGES: tl.constexpr = ROWS // WIDTH
    STRIPS: tl.constexpr = (HEIGHT + STRIP - 1) // STRIP
    count_out = out_vectors * OUT_VECTOR
    tile, tiles = tl.program_id(0) // OUT_BLOCKS, tl.num_programs(0) // OUT_BLOCKS
    top, image = (tile % STRIPS) * STRIP, (tile // STRIPS) * IMAGES
    lanes = tl.arange(0, ROWS)
    column, pixel = lanes % WIDTH, (lanes // WIDTH) * (HEIGHT * WIDTH) + lanes % WIDTH
    alive = image + lanes // WIDTH < num_images
    channels = (tl.program_id(0) % OUT_BLOCKS) * OUT_BLOCK + tl.arange(0, OUT_BLOCK)
    in_range, of_input = channels < count_out, tl.arange(0, IN_BLOCK)
    start = (agent * num_images + image) * (HEIGHT * WIDTH)  # of 64 bits, which what is added to it need not have
    corner = x + start * COUNT_IN + ((pixel - 1) * COUNT_IN)[:, None] + of_input[None, :]
    taps = weight + agent * 9 * COUNT_IN * count_out + of_input[:, None] * count_out + channels[None, :]
    w_mask, size = (of_input < COUNT_IN)[:, None] & in_range[None, :], COUNT_IN * count_out
    upper, middle = _three_taps(taps, size, w_mask), _three_taps(taps + 3 * size, size, w_mask)
    lower = _three_taps(taps + 6 * size, size, w_mask)
    y += start * (row_vectors * OUT_VECTOR) + channels[None, :]
    if RESIDUAL:
        residual += start * count_out + channels[None, :]
    if BACKWARD:
        before += start * count_out + channels[None, :]
        of_agent = agent * count_out + channels
        a = tl.load(scale + of_agent, mask=in_range, other=0.0)[None, :]
        b = tl.load(shift + of_agent, mask=in_range, other=0.0)[None, :]
        centre = tl.load(mean + of_agent, mask=in_range, other=0.0)[None, :]
        inverse = tl.load(rstd + of_agent, mask=in_range, other=0.0)
        first = tl.zeros((ROWS, OUT_BLOCK), tl.float32)  # added up over the lanes at the end, so that threads meet once
        second = tl.zeros((ROWS, OUT_BLOCK), tl.float32)
    above = tl.zeros((ROWS, OUT_BLOCK), tl.float32)
    beside = tl.zeros((ROWS, OUT_BLOCK), tl.float32)
    for step in range(STRIP + 2):
        row = top - 1 + step + lanes * 0
        below = tl.zeros((ROWS, OUT_BLOCK), tl.float32)
        for tap in tl.static_range(3):
            inside = (alive & (row >= 0) & (row < HEIGHT) & (column >= 1 - tap) & (column < WIDTH + 1 - tap))[:, None]
            if IN_BLOCK > COUNT_IN:
                inside = inside & (of_input < COUNT_IN)[None, :]
            seen = tl.load(corner + ((row * WIDTH + tap) * COUNT_IN)[:, None], mask=inside, other=0.0)
            above = tl.dot(seen, lower[tap], above, input_precision=PRECISION)
            beside = tl.dot(seen, middle[tap], beside, input_precision=PRECISION)
            below = tl.dot(seen, upper[tap], below, input_precision=PRECISION)
        # The row above has seen all it needs; in the first two steps it belongs to the strip before.
        done = row - 1
        counts = (alive & (done >= top) & (done < HEIGHT))[:, None]
        valid = counts & in_range[None, :]
        at = (pixel + done * WIDTH)[:, None]
        if RESIDUAL:
            above += tl.load(residual + at * count_out, mask=valid, other=0.0).to(tl.float32)
        if BACKWARD:
            values = tl.load(before + at * count_out, mask=valid, other=0.0).to(tl.float32)
            above = tl.where(counts & (values * a + b > 0), above, 0.0)
            first += above
            second += above * (values - centre)
        tl.store(y + at * (row_vectors * OUT_VECTOR), above.to(y.dtype.element_ty), mask=valid)
        above = beside
        beside = below
    if BACKWARD:
        part = (agent * tiles + tile) * 2 * count_out + channels
        tl.store(sums + part, tl.sum(first, axis=0), mask=in_range)
        tl.store(sums + part + count_out, tl.sum(second, axis=0) * inverse, mask=in_range)


@triton.jit
def strip_gradient_kernel(
    x, dy, parts, num_images, pairs, pairs_each, out_vectors,
    COUNT_IN: tl.constexpr, OUT_VECTOR: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, WINDOW: tl.constexpr,
    OUT_BLOCK: tl.constexpr, OUT_BLOCKS: tl.constexpr,
):  # fmt: skip
    """As weight_gradient_kernel, for a stretch of pairs of rows: two rows of x and the four of dy that see them."""
    split, agent = tl.program_id(0), tl.program_id(1).to(tl.int64)
    IMAGES: tl.constexpr = ROWS // WIDTH
    PAIRS: tl.constexpr = (HEIGHT + 1) // 2
    count_out = out_vectors * OUT_VECTOR
    window = (tl.program_id(2) // OUT_BLOCKS) * WINDOW + tl.arange(0, WINDOW)
    channels = (tl.program_id(2) % OUT_BLOCKS) * OUT_BLOCK + tl.arange(0, OUT_BLOCK)
    in_range, lanes = (channels < count_out)[None, :], tl.arange(0, ROWS)
    x += agent * num_images * (HEIGHT * WIDTH * COUNT_IN) + window[None, :]
    dy += agent * num_images * (HEIGHT * WIDTH) * count_out + channels[None, :]
    column = (lanes % WIDTH)[:, None] - 1 + (window // COUNT_IN)[None, :]
    inside = (column >= 0) & (column < WIDTH) & (window < 3 * COUNT_IN)[None, :]
    upper = tl.zeros((WINDOW, OUT_BLOCK), tl.float32)
    middle = tl.zeros((WINDOW, OUT_BLOCK), tl.float32)
    lower = tl.zeros((WINDOW, OUT_BLOCK), tl.float32)
    for pair in range(split * pairs_each, min((split + 1) * pairs_each, pairs)):
        row = (pair % PAIRS) * 2 + lanes * 0
        image = (pair // PAIRS) * IMAGES + lanes // WIDTH
        pixel = (image * HEIGHT + row) * WIDTH + lanes % WIDTH
        alive = image < num_images
        has_next, has_after = alive & (row < HEIGHT - 1), alive & (row < HEIGHT - 2)
        left, of_dy = ((pixel - 1) * COUNT_IN)[:, None], (pixel * count_out)[:, None]
        seen = tl.trans(tl.load(x + left, mask=inside & alive[:, None], other=0.0))
        below = tl.trans(tl.load(x + left + WIDTH * COUNT_IN, mask=inside & has_next[:, None], other=0.0))
        d = tl.load(dy + of_dy - WIDTH * count_out, mask=(alive & (row > 0))[:, None] & in_range, other=0.0)
        lower = tl.dot(seen, d, lower, input_precision=PRECISION)
        d = tl.load(dy + of_dy, mask=alive[:, None] & in_range, other=0.0)
        middle = tl.dot(seen, d, middle, input_precision=PRECISION)
        lower = tl.dot(below, d, lower, input_precision=PRECISION)
        d = tl.load(dy + of_dy + WIDTH * count_out, mask=has_next[:, None] & in_range, other=0.0)
        upper = tl.dot(seen, d, upper, input_precision=PRECISION)
        middle = tl.dot(below, d, middle, input_precision=PRECISION)
        d = tl.load(dy + of_dy + 2 * WIDTH * count_out, mask=has_after[:, None] & in_range, other=0.0)
        upper = tl.dot(below, d, upper, input_precision=PRECISION)
    of_row = 3 * COUNT_IN * count_out
    parts += (agent * tl.num_programs(0) + split) * 3 * of_row
    at = window[:, None] * count_out + channels[None, :]
    valid = (window < 3 * COUNT_IN)[:, None] & in_range
    tl.store(parts + at, upper, mask=valid)
    tl.store(parts + of_row + at, middle, mask=valid)
    tl.store(parts + 2 * of_row + at, lower, mask=valid)
