"""Chooses the kernel of a convolution of stacked agents, and splits its work into programs."""

from typing import Any

import torch
import triton

from gossamer.nn.kernels import convolution as conv
from gossamer.nn.kernels import strips
from gossamer.nn.kernels.sizes import GRADIENT_PROGRAMS, Geometry, block_of, num_rows_of, split_rows, vector_of
from gossamer.shapes import Float, Tensor


def tile_of(size: Geometry) -> tuple[int, int, int]:
    """Return the input and output channels of a convolution's tile, and its warps."""
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
    """Return conv(x) + residual; with `before` (x, scale, shift, mean, rstd) also the ReLU's gradient and its sums.

    `into` is where to write: some channels of a wider buffer.
    """
    n, batch = x.shape[:2]
    y = x.new_empty((n, batch, size.out_height, size.out_width, size.channels_out)) if into is None else into
    given = x, taps, x if residual is None else residual, *(before or (x,) * 5), y
    what = {"RESIDUAL": residual is not None, "BACKWARD": before is not None, "PRECISION": precision}
    by = _by_strips if fits_strips(size) else _by_taps
    return y, by(given, size, what)


def _by_taps(given: tuple[Tensor, ...], size: Geometry, what: dict[str, Any]) -> Tensor:
    """Convolve with any sizes; return the sums."""
    y = given[-1]
    num_rows, row = num_rows_of(y), y.stride(3)
    (in_block, out_block, warps), rows = tile_of(size), 128
    arguments = size.arguments(row)
    tiles, out_blocks = triton.cdiv(num_rows, rows), triton.cdiv(size.channels_out, out_block)
    sums = _empty_sums(y, tiles, what)
    conv.product_kernel[(tiles * out_blocks, y.shape[0])](
        *given, sums, num_rows, row // arguments["OUT_VECTOR"], **arguments, **what, SPREAD=size.spread,
        ROWS=rows, IN_BLOCK=in_block, IN_BLOCKS=triton.cdiv(size.channels_in, in_block),
        PARTIAL=size.channels_in % in_block > 0, OUT_BLOCK=out_block, OUT_BLOCKS=out_blocks, num_warps=warps,
    )  # fmt: skip
    return sums


def fits_strips(size: Geometry) -> bool:
    """Say whether strips work and are faster: rows fill the lanes, nine taps' weights fit, enough programs."""
    in_block, out_block, *_ = strip_tile_of(size)
    return (
        size.is_plain
        and size.channels_in <= in_block
        and in_block * out_block <= 1024
        and size.height >= 16
        and 64 % size.width == 0
    )


def strip_tile_of(size: Geometry) -> tuple[int, int, int, int, int]:
    """Return the input and output channels of a strip, its lanes, rows and warps."""
    in_block = block_of(size.channels_in)
    out_block = min(in_block, block_of(size.channels_out))
    lanes, strip = 128 if in_block == 16 else 64, 32 if in_block == 64 else 16
    return in_block, out_block, lanes, strip, 2 if max(in_block, size.channels_out) <= 16 else 4


def _by_strips(given: tuple[Tensor, ...], size: Geometry, what: dict[str, Any]) -> Tensor:
    """Convolve with fewer loads, for sizes that allow it; return the sums."""
    y = given[-1]
    batch, row = y.shape[1], y.stride(3)
    in_block, out_block, lanes, strip, warps = strip_tile_of(size)
    vector = vector_of(size.channels_out, row)
    tiles = triton.cdiv(batch, lanes // size.width) * triton.cdiv(size.height, strip)
    out_blocks = triton.cdiv(size.channels_out, out_block)
    sums = _empty_sums(y, tiles, what)
    strips.strip_kernel[(tiles * out_blocks, y.shape[0])](
        *given, sums, batch, row // vector, size.channels_out // vector,
        COUNT_IN=size.channels_in, OUT_VECTOR=vector, HEIGHT=size.height, WIDTH=size.width, **what,
        ROWS=lanes, STRIP=strip, IN_BLOCK=in_block, OUT_BLOCK=out_block, OUT_BLOCKS=out_blocks,
        num_warps=warps, num_stages=3 if y.element_size() == 2 else 1,
    )  # fmt: skip
    return sums


def _empty_sums(y: Tensor, tiles: int, what: dict[str, Any]) -> Tensor:
    """Return an empty tensor for each tile's two sums, if they are needed."""
    return y.new_empty((y.shape[0], tiles, 2, y.shape[-1]) if what["BACKWARD"] else (1,), dtype=torch.float32)


def gradient_tile_of(size: Geometry, element_size: int) -> tuple[int, int, int]:
    """Return, for the weights' gradient, the part of a window and the rows of a tile, and the stages."""
    out_block = block_of(size.channels_out)
    # Three accumulators of window x out_block must fit into the registers; a window that is cut is cut at a tap.
    limit = 64 if size.channels_in == 64 or out_block == 16 else 128
    window = min(limit, 4096 // out_block, block_of(size.kernel * size.channels_in, 128))
    if element_size > 2:
        return window, 32, 1
    return (window, 64, 3) if window * out_block <= 1024 else (window, 32, 4)


def fits_pairs(size: Geometry, rows: int) -> bool:
    """Say whether the weights' gradient can use pairs of rows, which is faster: whole rows fill a tile."""
    return size.is_plain and rows % size.width == 0


def weight_gradient(size: Geometry, z: Tensor, dy: Tensor, precision: str) -> Tensor:
    """Return [n, k, c, kernel, kernel] in float32."""
    n, batch, num_rows = *z.shape[:2], num_rows_of(dy)
    out_block = block_of(size.channels_out)
    window, rows, stages = gradient_tile_of(size, z.element_size())
    out_blocks = triton.cdiv(size.channels_out, out_block)
    blocks = triton.cdiv(size.kernel * size.channels_in, window) * out_blocks
    by_pairs = fits_pairs(size, rows)
    pairs = triton.cdiv(batch, rows // size.width) * triton.cdiv(size.height, 2) if by_pairs else 0
    programs = GRADIENT_PROGRAMS // (n * blocks)
    splits, each = split_rows(pairs, 1, programs) if by_pairs else split_rows(num_rows, rows, programs)
    taps = size.kernel**2
    parts = z.new_empty((n, splits, taps, size.channels_in, size.channels_out), dtype=torch.float32)
    tile = {"ROWS": rows, "WINDOW": window, "OUT_BLOCK": out_block, "OUT_BLOCKS": out_blocks, "PRECISION": precision}
    arguments, grid = size.arguments(), (splits, n, blocks)
    if by_pairs:
        strips.strip_gradient_kernel[grid](
            z, dy, parts, batch, pairs, each, arguments["out_vectors"], COUNT_IN=size.channels_in,
            OUT_VECTOR=arguments["OUT_VECTOR"], HEIGHT=size.height, WIDTH=size.width, **tile, num_stages=stages,
        )  # fmt: skip
    else:
        conv.weight_gradient_kernel[grid](z, dy, parts, num_rows, each, **arguments, **tile, num_stages=stages)
    shape = (n, size.channels_out, size.channels_in, size.kernel, size.kernel)
    dweight = z.new_empty(shape, dtype=torch.float32)
    finish_weight_gradient(parts, dweight)
    return dweight


def finish_weight_gradient(parts: Float[Tensor, "n s t c k"], dweight: Float[Tensor, "n k c kernel kernel"]) -> None:
    """Sum the parts into the order of a module's weight."""
    n, splits, taps, channels_in, channels_out = parts.shape
    conv.finish_weight_gradient_kernel[(triton.cdiv(parts[0, 0].numel(), 32), n)](
        parts, dweight, splits, taps, channels_in, channels_out,
        SPLITS=triton.next_power_of_2(splits), BLOCK=32, num_warps=1,
    )  # fmt: skip
