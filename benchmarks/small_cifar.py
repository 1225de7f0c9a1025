"""Measures how much a rule loses to delay, on two CPU cores: PreResNet-8 on CIFAR-10 with images of half the size.

A quick test of a rule before a study on a GPU. Momentum 0.9, cosine schedule, batches of 16, 4 epochs (1408 steps with
8 agents); accuracy on a held-out tenth of the training data. About two minutes per run.

Run from the root of the repository: python benchmarks/small_cifar.py sdm-asgd --delay 20 --lr 0.2 --seed 0
"""

import argparse
import dataclasses

import torch
from torch import nn

import gossamer as gm
from gossamer.data import Examples
from gossamer.tasks import Task, make_task

COMMON = {"batch": 16, "momentum": 0.9, "weight_decay": 1e-4, "schedule": "cosine", "augment": "none"}
GROUPS = 8


def halved(examples: Examples) -> Examples:
    """Return images of half the size; each pixel is the mean of four."""
    small = torch.nn.functional.avg_pool2d(examples.x.float(), 2).round()
    return Examples(small.to(examples.x.dtype), examples.y)


def with_group_norm(task: Task) -> Task:
    """Return the task with GroupNorm in place of BatchNorm."""

    def model() -> nn.Module:
        net = task.model()
        for layer in net.modules():
            for name, child in layer.named_children():
                if isinstance(child, nn.BatchNorm2d):
                    setattr(layer, name, nn.GroupNorm(GROUPS, child.num_features))
        return net

    return dataclasses.replace(task, model=model)


def main() -> None:
    """Train once and print the accuracy."""
    parser = argparse.ArgumentParser(description="Train PreResNet-8 on small CIFAR-10 images with one rule.")
    parser.add_argument("rule")
    parser.add_argument("--network", default="paper-1")
    parser.add_argument("--delay", default="20")
    parser.add_argument("--partition", default="iid")
    parser.add_argument(
        "--norm-stats",
        choices=("local", "mixed", "recalibrated", "group"),
        help="statistics of BatchNorm (default: local, or recalibrated with skewed labels), or GroupNorm",
    )
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--warmup", type=float, default=0.25)
    parser.add_argument("--nesterov", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    wanted = vars(parser.parse_args())
    # With few classes an agent's own statistics do not fit the test data.
    stats = wanted["norm_stats"] = wanted["norm_stats"] or ("local" if wanted["partition"] == "iid" else "recalibrated")
    told = ", ".join(str(value) for value in wanted.values())
    rule, network = wanted.pop("rule"), wanted.pop("network")
    task = make_task("cifar10", "preresnet:8")
    if stats == "group":
        del wanted["norm_stats"]
        task = with_group_norm(task)
    task = dataclasses.replace(task, train=halved(task.train), test=halved(task.test)).held_out(0.1, 0)
    result = gm.simulate(task, network, rule, eval_every=1_000_000, **COMMON, **wanted)
    print(f"{told}: {100 * result.summary['accuracy_mean']:.1f} %")


if __name__ == "__main__":
    main()
