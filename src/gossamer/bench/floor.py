"""The time below which a net of pre-activation units cannot go: the bytes it must move at the rate of a plain copy.

The passes are those of the fused unit (nn/kernels/unit.py). Over its input: forward 2 (statistics, convolution),
backward 6 (x and dz to pass the ReLU; dz, x and dx to pass the norm; x for the weights). Over its output: forward 1
(y), backward 2 (dy to carry back; dy for the weights). A residual adds one over the output forward and, as the gradient
that comes along the other path, one over the input backward. Stem, shortcuts and head are left out: a lower bound.
"""

from typing import Any

import torch
from torch import nn

from gossamer.nn.layers import NormReLUConv2d
from gossamer.shapes import Tensor

INPUT_PASSES = 8
OUTPUT_PASSES = 3


def elements_moved(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Return how many numbers a step moves for one image of this shape, summed over all units of the module."""
    total = 0

    def count(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        nonlocal total
        residual = len(inputs) > 1 and inputs[1] is not None
        total += (INPUT_PASSES + residual) * inputs[0].numel() + (OUTPUT_PASSES + residual) * output.numel()

    hooks = [part.register_forward_hook(count) for part in module.modules() if isinstance(part, NormReLUConv2d)]
    module.eval()  # one image has no statistics of its own
    with torch.no_grad():
        module(torch.zeros(1, *shape))
    for hook in hooks:
        hook.remove()
    return total
