"""Measures the products of many agents' matrices on a CPU: batched by MKL, in a loop, and agent by agent by oneDNN.

For each shape of a linear layer it prints the processor time of the outputs, of the gradient of the inputs, and of the
gradient of the weights, which goes into rows of a larger tensor: directly, or by way of a tensor of its own. The times
are medians of interleaved rounds. src/gossamer/nn/cpu_products.py holds the limits that follow from them.

Run from the root of the repository: python benchmarks/cpu_products.py
"""

import statistics
import time
from collections.abc import Callable

import torch

from gossamer.nn.cpu_products import _one_by_one
from gossamer.run.machine import kept_memory

SHAPES = [  # agents, batch, inputs, outputs
    *((8, 16, 64, 32), (100, 16, 64, 32), (100, 64, 128, 10), (8, 128, 256, 10), (8, 64, 256, 64), (100, 64, 128, 128)),
    *((8, 64, 256, 128), (8, 128, 256, 128), (100, 16, 784, 128), (100, 32, 784, 128), (8, 32, 784, 256)),
    *((100, 64, 784, 128), (8, 128, 256, 256), (8, 128, 784, 256), (8, 512, 784, 256)),
]
ROUNDS, CALLS = 7, 3


def ways_of(n: int, batch: int, width_in: int, width_out: int) -> dict[str, dict[str, Callable[[], object]]]:
    """Return the ways to compute each of a layer's three products."""
    size = width_in * width_out
    x, dy = torch.randn(n, batch, width_in), torch.randn(n, batch, width_out)
    rows = torch.randn(n, size + 3)  # of a model that has other parameters too
    weight = rows[:, :size].view(n, width_out, width_in)
    place = torch.empty_like(rows)[:, :size].view(n, width_out, width_in)

    def loop(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        for one, other, part in zip(a.unbind(), b.unbind(), out.unbind(), strict=True):
            torch.mm(one, other, out=part)

    return {
        "outputs": {
            "batched": lambda: torch.bmm(weight, x.mT),
            "loop": lambda: loop(x, weight.mT, torch.empty_like(dy)),
            "oneDNN": lambda: _one_by_one(x, weight.mT, None),
        },
        "d inputs": {
            "batched": lambda: torch.bmm(dy, weight),
            "loop": lambda: loop(dy, weight, torch.empty_like(x)),
            "oneDNN": lambda: _one_by_one(dy, weight, None),
        },
        "d weights": {
            "batched": lambda: torch.bmm(dy.mT, x, out=place),
            "batched, copied": lambda: place.copy_(torch.bmm(dy.mT, x)),
            "loop": lambda: loop(dy.mT, x, place),
            "oneDNN": lambda: _one_by_one(dy.mT, x, None, place),
        },
    }


def timed(call: Callable[[], object]) -> float:
    """Return the milliseconds of processor time of a call."""
    begun = time.thread_time()
    for _ in range(CALLS):
        call()
    return 1000 * (time.thread_time() - begun) / CALLS


def main() -> None:
    """Measure all shapes."""
    torch.set_num_threads(1)
    for shape in SHAPES:
        n, batch, width_in, width_out = shape
        size = batch * width_in * width_out / 2**20
        print(f"{n} agents, batch {batch}, {width_in} to {width_out}: {size:.2f} x 2^20 multiplications")
        for name, ways in ways_of(*shape).items():
            rounds = [{way: timed(call) for way, call in ways.items()} for _ in range(ROUNDS + 1)][1:]
            medians = {way: statistics.median(one[way] for one in rounds) for way in ways}
            shown = ", ".join(f"{way} {ms:.3f} ({medians['batched'] / ms:.2f} x)" for way, ms in medians.items())
            print(f"    {name:9} ms: {shown}", flush=True)


if __name__ == "__main__":
    with kept_memory():
        main()
