"""Accuracy and loss of one model on a task's test data."""

import torch
from torch import nn

from gossamer.tasks import Task, correct

EXAMPLES = 2048  # at a time


@torch.no_grad()
def evaluate(module: nn.Module, task: Task) -> tuple[float, float]:
    """Return the share of right answers, and the mean loss."""
    like = next(module.parameters())
    test = task.test.to(str(like.device))
    right = loss = 0.0
    was_training = module.training
    module.eval()
    for indices in torch.arange(len(test), device=like.device).split(EXAMPLES):
        outputs, targets = module(task.inputs(test.x[indices], like.dtype)), test.y[indices]
        right += float(correct(outputs, targets).sum())
        loss += float(task.loss(outputs, targets)) * len(indices)
    module.train(was_training)
    return right / test.y.numel(), loss / len(test)
