"""Gradients that layers leave in the rows of one tensor."""

import pytest
import torch
from torch import nn

import gossamer as gm
from gossamer.nn import FlatModule, cpu_products
from stacks import agents

N, BATCH = 3, 5


class Twice(nn.Module):
    """A layer that is used twice, so its gradient has two parts."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 2, bias=False)

    def forward(self, x):
        return self.head(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


def deep():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 2))


def gradients(modules, x):
    """The gradients of the sum of squares of every agent's outputs, one row an agent."""
    for module, one in zip(modules, x, strict=True):
        module.zero_grad()
        module(one).pow(2).sum().backward()
    return torch.stack([torch.cat([p.grad.flatten() for p in module.parameters()]) for module in modules])


@pytest.mark.parametrize("make", [deep, Twice])
@pytest.mark.parametrize("large", [0, 2**60])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_those_of_plain_modules_and_lie_in_their_places(monkeypatch, make, large, dtype):
    monkeypatch.setattr(cpu_products, "LARGE", large)
    monkeypatch.setattr(cpu_products, "one_dnn_is_faster", lambda: True)
    modules = agents(make, N, dtype)
    stacked, x = gm.stack(modules[0], N).load(modules), torch.randn(N, BATCH, 4, dtype=dtype)
    leaves = list(stacked.stacked_parameters().values())
    g = torch.full((N, FlatModule(modules[0]).size), torch.nan, dtype=dtype)
    with stacked.gradients_to(g) as places:
        found = torch.autograd.grad(stacked(x).pow(2).sum(), leaves)
    expected = gradients(modules, x)
    joined = torch.cat([part.reshape(N, -1) for part in found], dim=1)
    torch.testing.assert_close(joined, expected)
    if make is deep:
        weights = list(zip(found, places, strict=True))[::2]
        assert all(part.data_ptr() == place.data_ptr() and torch.equal(part, place) for part, place in weights)
    # Outside the context gradients are tensors of their own.
    again = torch.autograd.grad(stacked(x).pow(2).sum(), leaves)
    assert not any(part.data_ptr() == place.data_ptr() for part, place in zip(again, places, strict=True))
    assert torch.equal(torch.cat([part.reshape(N, -1) for part in again], dim=1), joined)


def test_a_stack_of_linear_layers_has_second_derivatives(monkeypatch):
    monkeypatch.setattr(cpu_products, "SMALL", 0)
    modules = agents(deep, N)
    stacked, x = gm.stack(modules[0], N).load(modules), torch.randn(N, BATCH, 4, dtype=torch.float64)

    def norm_of_gradient(run, parameters, x):
        first = torch.autograd.grad(run(x).pow(2).sum(), parameters, create_graph=True)
        return torch.autograd.grad(sum(part.pow(2).sum() for part in first), parameters[0])[0]

    found = norm_of_gradient(stacked, list(stacked.stacked_parameters().values()), x)
    for i, module in enumerate(modules):
        torch.testing.assert_close(found[i], norm_of_gradient(module, list(module.parameters()), x[i]))
