"""Run by test_kernels.py: all outputs, gradients and statistics of the kernels against torch's own.

    kernel_cases.py GROUP [DEVICE]

On a CPU with TRITON_INTERPRET=1; on a GPU as they are compiled.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

from gossamer.nn import kernels, make_model, stack
from gossamer.nn.kernels.batch_norm import Norm
from gossamer.nn.kernels.dense import DenseBlockFunction, DenseNorms
from gossamer.nn.kernels.preactivation_unit import Unit

DEVICE = "".join(sys.argv[2:3]) or "cpu"

# agents, batch, height, width, channels in and out, kernel, stride, norm, residual, training
CASES = [
    (2, 3, 8, 8, 16, 16, 3, 1, True, True, True),
    (2, 2, 8, 6, 16, 32, 3, 2, True, False, True),
    (1, 2, 7, 5, 16, 20, 3, 2, True, False, True),  # odd sizes
    (2, 2, 4, 4, 3, 16, 3, 1, False, False, True),  # a stem
    (1, 2, 4, 4, 36, 12, 3, 1, True, False, True),  # a dense layer
    (2, 2, 4, 4, 100, 48, 1, 1, True, False, True),  # more channels than one block
    (1, 2, 3, 3, 70, 70, 3, 1, True, True, True),  # several blocks of channels in and out
    (2, 2, 4, 4, 16, 8, 1, 1, True, False, False),  # running statistics
    (2, 2, 8, 8, 16, 32, 1, 2, False, False, True),  # a shortcut
    (3, 5, 9, 9, 8, 8, 3, 1, True, True, True),  # several tiles
    (1, 1, 1, 1, 8, 8, 1, 1, True, False, False),
    (1, 9, 17, 16, 16, 16, 3, 1, True, True, True),  # strips: more images than one, an odd last row
    (2, 3, 35, 16, 20, 30, 3, 1, True, True, True),  # several strips, channels that fill no block
    (1, 3, 16, 32, 12, 48, 3, 1, True, False, False),  # several blocks of channels out
    (1, 2, 33, 16, 48, 12, 3, 1, True, False, True),  # a dense layer
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


def check_unit(n, batch, height, width, channels, out, kernel, stride, has_norm, has_residual, training):
    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, device=DEVICE)

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


# agents, batch, size, channels in, layers, growth, training
DENSE_CASES = [(2, 2, 4, 24, 2, 12, True), (1, 2, 6, 30, 2, 12, True), (2, 2, 4, 24, 2, 12, False)]


def dense_truth(x, tensors, statistics, training):
    outputs = []
    for i, one in enumerate(x):
        z = one.permute(0, 3, 1, 2)
        for layer in range(len(tensors) // 6):
            wide, a1, b1, narrow, a2, b2 = (t[i] for t in tensors[6 * layer : 6 * layer + 6])
            m1, v1, m2, v2 = (t[i] for t in statistics[4 * layer : 4 * layer + 4])
            inner = F.conv2d(F.batch_norm(z, m1, v1, a1, b1, training, 0.1, 1e-5).relu(), wide)
            new = F.conv2d(F.batch_norm(inner, m2, v2, a2, b2, training, 0.1, 1e-5).relu(), narrow, padding=1)
            z = torch.cat([z, new], dim=1)
        outputs.append(z.permute(0, 2, 3, 1))
    return torch.stack(outputs)


def check_dense(n, batch, size, channels, layers, growth, training):
    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, device=DEVICE)

    x, dy, inner = (
        draw(n, batch, size, size, channels),
        draw(n, batch, size, size, channels + layers * growth),
        4 * growth,
    )
    tensors, statistics = [], []
    for count in range(channels, channels + layers * growth, growth):
        tensors += [0.2 * draw(n, inner, count, 1, 1), draw(n, count) + 1, draw(n, count)]
        tensors += [0.1 * draw(n, growth, inner, 3, 3), draw(n, inner) + 1, draw(n, inner)]
        for width in (count, inner):
            statistics += [draw(n, width), draw(n, width).square() + 0.1]

    def run(dtype, block):
        given = [t.to(dtype).requires_grad_() for t in (x, *tensors)]
        moved = [t.to(dtype, copy=True) for t in statistics]
        y = block(given, moved)
        return [y, *torch.autograd.grad(y, given, dy.to(dtype)), *moved]

    def fused(given, moved):
        def norm(layer, which):
            weight, bias = (t.detach() for t in given[2 + 6 * layer + 3 * which : 4 + 6 * layer + 3 * which])
            return Norm(weight, bias, *moved[4 * layer + 2 * which : 4 * layer + 2 * which + 2], 0.1, 1e-5, training)

        norms = [DenseNorms(norm(layer, 0), norm(layer, 1)) for layer in range(layers)]
        return DenseBlockFunction.apply(given[0], norms, "ieee", *given[1:])

    def plain(given, moved):
        return dense_truth(given[0], given[1:], moved, training)

    for ours, theirs in zip(run(torch.float32, fused), run(torch.float64, plain), strict=True):
        assert (ours.double() - theirs).norm() <= 1e-5 * theirs.norm()


MODELS = [("preresnet:8", True), ("densenet:10", True), ("cnn:4,8", True), ("preresnet:8", False)]


def without_batches(model):
    """Put GroupNorm in BatchNorm's place, as users do who have skewed labels."""
    for layer in model.modules():
        for name, child in layer.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(layer, name, nn.GroupNorm(4, child.num_features))
    return model


def check_model(name, batch_norm):
    """Compare stacked models on the kernels with the models themselves."""
    models = [make_model(name, (3, 8, 8), 5).to(DEVICE) for _ in range(2)]
    models = models if batch_norm else [without_batches(model).to(DEVICE) for model in models]
    stacked, x = stack(models[0], 2).load(models), torch.randn(2, 2, 3, 8, 8, device=DEVICE)
    y = stacked(x)
    ours = torch.autograd.grad(y.square().sum(), list(stacked.stacked_parameters().values()))
    for i, model in enumerate(models):
        output = model(x[i])
        theirs = torch.autograd.grad(output.square().sum(), list(model.parameters()))
        torch.testing.assert_close(y[i], output, rtol=1e-4, atol=1e-5)
        for one, other in zip(ours, theirs, strict=True):
            assert (one[i] - other).norm() <= 1e-4 * other.norm() + 1e-4
    with torch.no_grad():
        evaluated = stacked.eval()(x)
    for i, model in enumerate(models):  # with the statistics that the batch above has moved
        torch.testing.assert_close(evaluated[i], model.eval()(x[i]), rtol=1e-4, atol=1e-5)
        for buffer, other in zip(stacked.stacked_buffers().values(), model.buffers(), strict=True):
            torch.testing.assert_close(buffer[i], other)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False  # what the kernels are held against is exact
    kernels.usable = lambda x: x.dtype == torch.float32  # as if the CPU were a GPU
    groups = {
        "units": (check_unit, CASES),
        "dense blocks": (check_dense, DENSE_CASES),
        "models": (check_model, MODELS),
    }
    check, cases = groups[sys.argv[1]]
    for case in cases:
        check(*case)
        print(case, "ok")
