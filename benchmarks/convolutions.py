"""Measures the gain of the strips of nn/kernels/strips.py over convolutions tap by tap, on a GPU.

Times single kernels at the sizes of PreResNet and DenseNet-BC, 8 agents x 128 images in bf16, and whole models forward
and backward. Both ways run as CUDA graphs in the same process.

Run from the root of the repository: python benchmarks/convolutions.py [MODEL ...]
"""

import contextlib
import statistics
import sys
from collections.abc import Callable, Iterator

import torch

import gossamer as gm
from gossamer.nn import make_model
from gossamer.nn.kernels import choose_kernel
from gossamer.nn.kernels.sizes import Geometry

AGENTS, BATCH = 8, 128
# Height, input channels, output channels.
SIZES = [(32, 16, 16), (16, 32, 32), (8, 64, 64), (32, 48, 12), (16, 48, 12), (8, 48, 12)]
MODELS = ["preresnet:20", "preresnet:110", "densenet:40,k=12"]
SETS = 4  # of inputs in turns, so that no kernel finds its input in the cache


@contextlib.contextmanager
def tap_by_tap() -> Iterator[None]:
    """Switch the strips off inside this context."""
    kept = choose_kernel.fits_strips, choose_kernel.fits_pairs
    choose_kernel.fits_strips, choose_kernel.fits_pairs = lambda size: False, lambda size, rows: False
    try:
        yield
    finally:
        choose_kernel.fits_strips, choose_kernel.fits_pairs = kept


def milliseconds(run: Callable[[], object], times: int) -> float:
    """Return the median time per run, of `times` runs in a graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            run()
    taken = []
    for _ in range(6):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) / times)
    return statistics.median(taken[1:])


def both_ways(what: str, run: Callable[[], object], calls: int) -> None:
    """Print the time per call, tap by tap and by strips."""
    with tap_by_tap():
        before = milliseconds(run, 5) / calls
    now = milliseconds(run, 5) / calls
    print(f"{what:44s} {before:9.4f} {now:9.4f} {now / before:6.2f}", flush=True)


def time_kernels(height: int, channels_in: int, channels_out: int) -> None:
    """Time a layer's convolution, its backward pass and its weights' gradient."""

    def draw(channels: int) -> list[torch.Tensor]:
        shape = (AGENTS, BATCH, height, height, channels)
        return [torch.randn(shape, device="cuda").bfloat16() for _ in range(SETS)]

    size = Geometry(height, height, channels_in, channels_out, 3, 1, 1)
    xs, dys = draw(channels_in), draw(channels_out)
    taps = torch.randn((AGENTS, 9 * channels_in * channels_out), device="cuda").bfloat16()
    affine = torch.rand((4, AGENTS, channels_in), device="cuda")
    name = f"{height} x {height}, {channels_in} to {channels_out}"
    both_ways(f"{name}, forward", lambda: [choose_kernel.convolve(x, taps, size, "tf32") for x in xs], SETS)
    both_ways(
        f"{name}, backward",
        lambda: [
            choose_kernel.convolve(dy, taps, size.backward(), "tf32", before=(x, *affine))
            for x, dy in zip(xs, dys, strict=True)
        ],
        SETS,
    )
    both_ways(
        f"{name}, weights' gradient",
        lambda: [choose_kernel.weight_gradient(size, x, dy, "tf32") for x, dy in zip(xs, dys, strict=True)],
        SETS,
    )


def time_model(name: str) -> None:
    """Time a model, forward and backward."""
    stacked = gm.stack(make_model(name, (3, 32, 32), 10), AGENTS).cuda().bfloat16()
    x = torch.randn(AGENTS, BATCH, 3, 32, 32, device="cuda").bfloat16()
    both_ways(f"{name}, forward and backward", lambda: stacked(x).float().square().sum().backward(), 1)


if __name__ == "__main__":
    print(f"{torch.cuda.get_device_name()}, ms{'':34s} by taps    strips  ratio")
    for sizes in SIZES:
        time_kernels(*sizes)
    for model in sys.argv[1:] or MODELS:
        time_model(model)
