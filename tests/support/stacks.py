"""Stacked modules against a plain loop over n modules, each with its own values."""

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.utils import _pytree as pytree

import gossamer as gm

TOLERANCE = {torch.float64: (1e-10, 1e-10), torch.float32: (2e-4, 2e-5), torch.bfloat16: (0.1, 0.1)}


def agents(make: Callable[[], nn.Module], n: int, dtype: torch.dtype = torch.float64) -> list[nn.Module]:
    """n modules that share no value: parameters, running statistics and counts all differ."""
    modules = []
    for i in range(n):
        torch.manual_seed(i)
        module = make().to(dtype)
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if name.endswith("num_batches_tracked"):
                tensor.fill_(i + 1)
            elif name.endswith("running_var"):
                tensor.data.uniform_(0.5, 2.0)
            elif tensor.is_floating_point() and not name.endswith("count"):
                tensor.data.normal_(0.0, 0.5)
        modules.append(module)
    return modules


def assert_same_as_a_loop(
    modules: Sequence[nn.Module], draw: Callable[[], tuple[torch.Tensor, ...]], stacked: gm.Stacked | None = None
) -> gm.Stacked:
    """Two steps in training and one in evaluation: outputs, gradients of parameters and inputs, buffers."""
    stacked = gm.stack(modules[0], len(modules)) if stacked is None else stacked
    stacked.load(modules)
    torch.manual_seed(0)
    for training in (True, True, False):
        stacked.train(training)
        stacked.zero_grad()
        inputs = draw()
        mine = [_leaf(x) for x in inputs]
        outputs = pytree.tree_leaves(stacked(*mine))
        directions = [torch.randn(y.shape).to(y) for y in outputs]
        if any(y.requires_grad for y in outputs):
            sum((y * d).sum() for y, d in zip(outputs, directions, strict=True)).backward()
        for i, module in enumerate(modules):
            module.train(training)
            module.zero_grad()
            theirs = [_leaf(x[i]) for x in inputs]
            wanted = pytree.tree_leaves(module(*theirs))
            _close(outputs, i, wanted)
            if any(y.requires_grad for y in wanted):
                sum((y * d[i]).sum() for y, d in zip(wanted, directions, strict=True)).backward()
            _close([x.grad for x in mine], i, [x.grad for x in theirs])
            parameters = stacked.stacked_parameters()
            assert list(parameters) == [name for name, _ in module.named_parameters()]
            _close([p.grad for p in parameters.values()], i, [p.grad for p in module.parameters()])
            assert list(stacked.stacked_buffers()) == [name for name, _ in module.named_buffers()]
            _close(list(stacked.stacked_buffers().values()), i, list(module.buffers()))
    return stacked


def _leaf(x: torch.Tensor) -> torch.Tensor:
    return x.detach().clone().requires_grad_(x.is_floating_point())


def _close(stacked: list[torch.Tensor | None], i: int, wanted: list[torch.Tensor | None]) -> None:
    for many, one in zip(stacked, wanted, strict=True):
        assert (many is None) == (one is None)
        if many is not None and one is not None:
            rtol, atol = TOLERANCE.get(one.dtype, (0.0, 0.0))
            torch.testing.assert_close(many[i], one, rtol=rtol, atol=atol)


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Callable[[], tuple[torch.Tensor]]:
    return lambda: (torch.randn(*shape, dtype=dtype),)


class Residual(nn.Module):
    """Adds, joins, flattens and reshapes as user code does, with a buffer and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4, 1, 1))
        self.register_buffer("count", torch.zeros(()))
        self.conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.act = nn.ReLU(inplace=True)
        self.again = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(8 * 9, 5)

    def forward(self, x):
        y = self.act(self.norm(self.conv(x)))
        y = y + self.scale * self.again(y)
        y += 1
        y = torch.cat([y, -y], dim=1)
        self.count = self.count + 1
        return self.head(self.pool(y).view(x.size(0), -1)).flatten(1)
