"""Run by test_kernels.py with TRITON_INTERPRET=1: every case compares all outputs and gradients of the fused unit."""

import itertools

import torch
import torch.nn.functional as F

from gossamer.nn.kernels.unit import Norm, Unit

# agents, batch, height, width, channels in and out, kernel, stride, norm, residual, training
CASES = [
    (2, 3, 8, 8, 16, 16, 3, 1, True, True, True),
    (2, 2, 8, 6, 16, 32, 3, 2, True, False, True),
    (1, 2, 7, 5, 16, 20, 3, 2, True, False, True),  # odd sizes
    (2, 2, 4, 4, 3, 16, 3, 1, False, False, True),  # a stem
    (1, 2, 4, 4, 36, 12, 3, 1, True, False, True),  # a dense layer
    (2, 2, 4, 4, 100, 48, 1, 1, True, False, True),  # more channels than one block
    (2, 2, 4, 4, 70, 70, 3, 1, True, True, True),
    (2, 2, 4, 4, 16, 8, 1, 1, True, False, False),  # running statistics
    (2, 2, 8, 8, 16, 32, 1, 2, False, False, True),  # a shortcut
    (3, 5, 9, 9, 8, 8, 3, 1, True, True, True),  # several tiles
    (1, 1, 1, 1, 8, 8, 1, 1, True, False, False),
]


def truth(x, weight, norm_weight, norm_bias, residual, means, variances, stride, training):
    outputs = []
    for i, one in enumerate(x):
        z = one.permute(0, 3, 1, 2)
        if norm_weight is not None:
            z = F.batch_norm(z, means[i], variances[i], norm_weight[i], norm_bias[i], training, 0.1, 1e-5).relu()
        outputs.append(F.conv2d(z, weight[i], stride=stride, padding=weight.shape[-1] // 2).permute(0, 2, 3, 1))
    y = torch.stack(outputs)
    return y if residual is None else y + residual


def check(n, batch, height, width, channels, out, kernel, stride, has_norm, has_residual, training):
    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64)

    x, weight = draw(n, batch, height, width, channels) + 0.5, 0.2 * draw(n, out, channels, kernel, kernel)
    norm = (draw(n, channels) + 1, draw(n, channels)) if has_norm else (None, None)
    means, variances = draw(n, channels), draw(n, channels).square() + 0.1
    shape = (n, batch, (height - 1) // stride + 1, (width - 1) // stride + 1, out)
    residual = draw(*shape) if has_residual else None
    dy, around = draw(*shape), draw(*x.shape)

    def run(dtype, unit):
        given = [None if t is None else t.to(dtype).requires_grad_() for t in (x, weight, *norm, residual)]
        statistics = [t.to(dtype) for t in (means.clone(), variances.clone())]
        y, copy = unit(given, statistics)
        gradients = torch.autograd.grad(
            [y, copy], [t for t in given if t is not None], [dy.to(dtype), around.to(dtype)]
        )
        return [y, *gradients, *statistics]

    def fused(given, statistics):
        of = None
        if has_norm:
            of = Norm(given[2].detach(), given[3].detach(), *statistics, 0.1, 1e-5, training)
        return Unit.apply(*given, of, stride, kernel // 2, "ieee")

    def plain(given, statistics):
        return truth(*given, *statistics, stride, training), given[0].view_as(given[0])

    for ours, theirs in zip(run(torch.float32, fused), run(torch.float64, plain), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=2e-4, atol=2e-5)


if __name__ == "__main__":
    torch.manual_seed(0)
    for number, case in zip(itertools.count(), CASES):
        check(*case)
        print(number, case, "ok")
