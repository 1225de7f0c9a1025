"""How much a rule loses to delay, on two CPU cores: PreResNet-8 on CIFAR-10 with images of half the size.

A stand-in for the studies that need a GPU, to try a rule before. Momentum 0.9, cosine, 8 agents in clusters of 3 and 5,
1404 steps with batches of 16; accuracy on a tenth of the training data, which is held out. About two minutes a run.

Run from the root of the repository: python benchmarks/small_cifar.py RULE DELAY LR SEED, as sdm-asgd 20 0.2 0
"""

import dataclasses
import sys

import torch

import gossamer as gm
from gossamer.data import Examples
from gossamer.tasks import make_task


def halved(examples: Examples) -> Examples:
    """Return images whose pixels are means of four."""
    small = torch.nn.functional.avg_pool2d(examples.x.float(), 2).round()
    return Examples(small.to(examples.x.dtype), examples.y)


def main(rule: str, delay: int, lr: float, seed: int) -> None:
    """Train once and tell the accuracy."""
    task = make_task("cifar10", "preresnet:8")
    task = dataclasses.replace(task, train=halved(task.train), test=halved(task.test)).held_out(0.1, 0)
    common = {"batch": 16, "epochs": 4, "momentum": 0.9, "weight_decay": 1e-4, "schedule": "cosine", "warmup": 0.25}
    result = gm.simulate(
        *(task, "paper-1", rule), delay=delay, lr=lr, seed=seed, augment="none", eval_every=1_000_000, **common
    )
    print(f"{rule}, delay {delay}, rate {lr:g}, seed {seed}: {100 * result.summary['accuracy_mean']:.1f} %")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit("usage: python benchmarks/small_cifar.py RULE DELAY LR SEED, as sdm-asgd 20 0.2 0")
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
