"""Compares trees of this repository: processor time of a gradient, an iteration and an evaluation, in turns.

Each tree gets a process of its own. The processes take turns, a few calls at a time, so a slow phase of the machine
hits all of them. `floor` is the time of the matrix products (or convolutions) of a gradient alone.

Run from the root of the repository, with the folders `src` of two check-outs:
python benchmarks/compare_trees.py ../before/src src --case many-mlps --part gradient
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn

CASES = {  # shape of an example, model, network, batch
    "many-mlps": ((1, 28, 28), "mlp:128,128", "ring:100", 64),
    "wide-mlps": ((1, 28, 28), "mlp:256,256", "ring:8", 128),
    "preresnets": ((3, 16, 16), "preresnet:8", "ring:8", 16),
}
EXAMPLES = {"train": 12_800, "test": 2_000}
PARTS = ("gradient", "iteration", "evaluation")


def make_training(case: str, execution: str, rule: str) -> object:
    """Return the run of a case, with random images that are prepared already."""
    from gossamer.data import Examples
    from gossamer.engine import make_training
    from gossamer.nn import make_model
    from gossamer.run.settings import make_settings
    from gossamer.tasks import Task

    shape, model, network, batch = CASES[case]
    draws = torch.Generator().manual_seed(0)

    def examples(count: int) -> Examples:
        x, y = torch.randn(count, *shape, generator=draws), torch.randint(10, (count,), generator=draws)
        return Examples(x, y)

    data = [examples(count) for count in EXAMPLES.values()]
    task = Task("random", lambda: make_model(model, shape, 10), *data, model_name=model)
    settings = {"network": network, "algorithm": rule, "delay": 2, "batch": batch, "lr": 1e-4, "epochs": 1_000_000}
    return make_training(make_settings(settings | {"execution": execution}), task=task)


def parts_of(training: object) -> dict[str, Callable[[], object]]:
    """Return what can be timed of a run."""
    simulation = training.simulation
    states = [simulation.x, simulation.x.clone()]  # a state is new at each step
    steps = iter(range(10**9))

    def gradient() -> None:
        step = next(steps)
        simulation.source.gradient(states[step % 2], step)

    buffers = simulation.statistics.buffers if simulation.statistics is not None else {}
    return {
        "gradient": gradient,
        "iteration": simulation.step,
        "evaluation": lambda: training.evaluate(simulation.x, buffers),
    }


def floor_of(case: str) -> Callable[[], None]:
    """Return the products of a gradient alone: batched, in the layout that the layers use, without their sums."""
    shape, model, network, batch = CASES[case]
    n = int(network.partition(":")[2])
    if model.startswith("preresnet"):
        return convolutions_of(shape, model, n, batch)
    widths = [torch.Size(shape).numel(), *map(int, model.partition(":")[2].split(",")), 10]
    products = []
    for first, (width_in, width_out) in enumerate(pairwise(widths)):
        x, w, y = torch.randn(n, batch, width_in), torch.randn(n, width_out, width_in), torch.randn(n, batch, width_out)
        places = [torch.empty_like(y.mT.contiguous()), torch.empty_like(w), torch.empty_like(x)]
        products += [(w, x.mT, places[0]), (y.mT, x, places[1]), *([(y, w, places[2])] if first else [])]

    def floor() -> None:
        for one, other, place in products:
            torch.bmm(one, other, out=place)

    return floor


def convolutions_of(shape: tuple[int, ...], model: str, n: int, batch: int) -> Callable[[], None]:
    """Return the convolutions of n models, forward and backward, agent by agent."""
    from gossamer.nn import make_model

    calls: list[tuple[nn.Conv2d, torch.Tensor, torch.Tensor]] = []
    net = make_model(model, shape, 10)
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda layer, given, y: calls.append((layer, given[0].detach(), y.detach())))
    net(torch.randn(batch, *shape))

    def floor() -> None:
        for layer, x, y in calls:
            like = (layer.stride, layer.padding, layer.dilation, False, (0, 0), 1)
            for _ in range(n):
                torch.convolution(x, layer.weight.detach(), None, *like)
                wanted = (x.shape[1] > 3, True, False)
                torch.ops.aten.convolution_backward(y, x, layer.weight.detach(), None, *like, wanted)

    return floor


def work(case: str, execution: str, rule: str, parts: list[str]) -> None:
    """Answer each line 'PART COUNT' with the milliseconds of processor time of a call."""
    from gossamer.run.machine import arithmetic

    torch.set_num_threads(1)
    training = make_training(case, execution, rule)
    calls = {"floor": floor_of(case), **parts_of(training)}
    with arithmetic(training.settings):
        for part in parts:
            for _ in range(4):
                calls[part]()
        print(training.settings.execution, flush=True)
        for line in sys.stdin:
            part, count = line.split()
            begun = time.process_time()
            for _ in range(int(count)):
                calls[part]()
            print(1000 * (time.process_time() - begun) / int(count), flush=True)


def race(trees: list[str], flags: argparse.Namespace) -> None:
    """Time all trees in turns, and print the medians and the ratios to the first tree."""
    parts = [*flags.part, "floor"]
    command = [sys.executable, __file__, "--work", "--case", flags.case, "--rule", flags.rule]
    workers = []
    for tree, execution in [(tree, execution) for tree in trees for execution in flags.execution.split(",")]:
        process = subprocess.Popen(
            [*command, "--execution", execution, *(word for part in parts for word in ("--part", part))],
            env={**os.environ, "PYTHONPATH": tree, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        workers.append((f"{tree} ({execution}: {process.stdout.readline().strip()})", process))
    for part in parts:
        found: dict[str, list[float]] = {name: [] for name, _ in workers}
        for _ in range(flags.rounds):
            for name, process in workers:
                process.stdin.write(f"{part} {flags.calls}\n")
                process.stdin.flush()
                found[name].append(float(process.stdout.readline()))
        first = statistics.median(next(iter(found.values())))
        for name, times in found.items():
            ms = statistics.median(times)
            print(f"{flags.case:10} {part:10} {ms:9.3f} ms {first / ms:5.2f} x ({min(times):.3f}) {name}", flush=True)
    for _, process in workers:
        process.stdin.close()
        process.wait()


def main() -> None:
    """Read the flags."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", nargs="*")
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--part", choices=(*PARTS, "floor"), action="append")
    parser.add_argument("--rule", default="d-asgd")
    parser.add_argument("--execution", default="auto")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--work", action="store_true")
    flags = parser.parse_args()
    flags.part = flags.part or ["gradient"]
    if flags.work:
        work(flags.case, flags.execution, flags.rule, flags.part)
    else:
        race(flags.trees, flags)


if __name__ == "__main__":
    main()
