"""A stacked module does what a loop over its agents does: networks with all kinds of code and layers in them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gossamer as gm
from gossamer.nn.stack import StackWarning, leave_vmap
from stacks import Residual, agents, assert_same_as_a_loop, normal


class Language(nn.Module):
    """A tied head, positions that are the same for all agents, a parameter used directly, attention by hand."""

    def __init__(self, tie: str) -> None:
        super().__init__()
        self.tie = tie
        self.token, self.position = nn.Embedding(11, 6, padding_idx=0), nn.Embedding(5, 6)
        self.bias = nn.Parameter(torch.zeros(6))
        self.register_buffer("mask", torch.zeros(5, 5))
        self.norm = nn.LayerNorm(6)
        self.mix = nn.Linear(6, 18)
        self.head = nn.Linear(6, 11, bias=False)
        if tie == "layer":
            self.head.weight = self.token.weight
        if tie == "container":
            self.own = self.token.weight

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1])) + self.bias
        q, k, v = self.mix(self.norm(x)).unflatten(-1, (3, 2, 3)).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v, self.mask).transpose(1, 2).flatten(2)
        weight = {"layer": self.head, "reach": self.token}.get(self.tie)
        return F.linear(x, self.own) if weight is None else F.linear(x, weight.weight) + self.head(x)


class OwnLayer(nn.Module):
    """A layer that nobody has a form for."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return torch.where(x > 0, x, x * self.slope)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("n", [1, 3])
def test_a_network_with_residuals_joins_and_its_own_state(n, dtype):
    assert_same_as_a_loop(agents(Residual, n, dtype), normal(n, 2, 3, 6, 6, dtype=dtype))


def test_the_way_out_by_public_means_alone(monkeypatch):
    assert leave_vmap.SHORT_WAY
    monkeypatch.setattr(leave_vmap, "SHORT_WAY", False)
    assert_same_as_a_loop(agents(Residual, 3), normal(3, 2, 3, 6, 6))
    assert_same_as_a_loop(agents(lambda: Language("reach"), 3), lambda: (torch.randint(0, 11, (3, 2, 5)),))
    recurrent = agents(lambda: nn.LSTM(4, 3, batch_first=True), 2)
    with pytest.warns(StackWarning):
        stacked = gm.stack(recurrent[0], 2)
    assert_same_as_a_loop(recurrent, normal(2, 2, 5, 4), stacked)


@pytest.mark.parametrize("short", [True, False])
def test_stepping_out_finds_the_agents_wherever_vmap_put_them(monkeypatch, short):
    monkeypatch.setattr(leave_vmap, "SHORT_WAY", short)
    session, anchor, x = leave_vmap.Session(3), torch.zeros(3), torch.randn(2, 3, 4)

    def run(x, pair, word):
        assert x.shape == (3, 2, 4) and x.stride() == (4, 12, 1) and word == "as it is"
        assert session.anchor is None
        return x * torch.arange(3).view(3, 1, 1), [part.sum(dim=1) for part in pair]

    def one(anchor, x):
        return session.call(anchor, lambda: leave_vmap.step_out(session, run, x, (x, torch.ones(2)), "as it is"), ())

    y, (total, shared) = torch.func.vmap(one, in_dims=(0, 1))(anchor, x)
    assert torch.equal(y, torch.stack([i * x[:, i] for i in range(3)]))
    assert torch.equal(total, x.sum(dim=0)) and torch.equal(shared, torch.full((3,), 2.0))


@pytest.mark.parametrize("tie", ["layer", "container", "reach"])
def test_tied_parameters_stay_tied_and_a_container_may_reach_into_a_layer(tie):
    stacked = assert_same_as_a_loop(agents(lambda: Language(tie), 3), lambda: (torch.randint(0, 11, (3, 2, 5)),))
    one = stacked.unstack()[1]
    assert tie != "layer" or one.head.weight is one.token.weight
    assert tie != "container" or one.own is one.token.weight


def test_a_layer_used_twice_and_one_that_only_a_list_knows():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.alias = self.first
            self.norm = nn.BatchNorm1d(4)
            self.shared = nn.Sequential(self.first)
            self.order = [self.first, self.norm, self.alias, self.shared]

        def forward(self, x):
            for layer in self.order:
                x = layer(x)
            return x

    assert_same_as_a_loop(agents(Twice, 3), normal(3, 5, 4))


def test_an_unknown_layer_is_right_and_warned_of_once():
    def make():
        return nn.Sequential(nn.Linear(3, 4), nn.Sequential(OwnLayer()), nn.Linear(4, 2), nn.Tanh())

    with pytest.warns(StackWarning) as caught:
        stacked = gm.stack(make(), 3)
    assert [str(w.message) for w in caught] == ["no stacked form for 1.0 (OwnLayer): correct, but slower"]
    assert_same_as_a_loop(agents(make, 3), normal(3, 5, 3), stacked.double())


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: nn.LSTM(4, 3, num_layers=2, batch_first=True, bidirectional=True), "the module itself (LSTM)"),
        (lambda: nn.GRUCell(4, 3), "the module itself (GRUCell)"),
        (lambda: nn.Sequential(nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular")), "0 (Conv1d)"),
        (lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), "self_attn (MultiheadAttention)"),
    ],
)
def test_torch_layers_without_a_form(make, named):
    with pytest.warns(StackWarning) as caught:
        stacked = gm.stack(make(), 3)
    assert [str(w.message) for w in caught] == [f"no stacked form for {named}: correct, but slower"]
    shape = (3, 2, 4) if "Cell" in named else (3, 2, 4, 4)
    assert_same_as_a_loop(agents(make, 3), normal(*shape), stacked.double())


def test_attention_and_recurrence_with_several_inputs():
    make = {"attention": lambda: nn.MultiheadAttention(4, 2, batch_first=True), "lstm": lambda: nn.LSTM(4, 3)}
    attention, lstm = (agents(m, 3) for m in make.values())
    with pytest.warns(StackWarning):
        stacked = gm.stack(attention[0], 3)
    assert_same_as_a_loop(attention, lambda: tuple(torch.randn(3, 3, 2, 5, 4).double()), stacked)

    class WithState(nn.Module):
        def __init__(self, lstm):
            super().__init__()
            self.lstm = lstm

        def forward(self, x, h, c):
            return self.lstm(x, (h, c))

    with pytest.warns(StackWarning):
        stacked = gm.stack(WithState(lstm[0]), 3)
    draws = (torch.randn(3, 5, 2, 4), torch.randn(3, 1, 2, 3), torch.randn(3, 1, 2, 3))
    assert_same_as_a_loop([WithState(m) for m in lstm], lambda: tuple(x.double() for x in draws), stacked)


def test_layers_with_hooks_or_parametrizations_keep_their_own_code():
    class Symmetric(nn.Module):
        def forward(self, weight):
            return weight + weight.T

    def make():
        symmetric, hooked = nn.Linear(4, 4), nn.Linear(4, 4)
        nn.utils.parametrize.register_parametrization(symmetric, "weight", Symmetric())
        hooked.register_forward_hook(lambda _module, _inputs, y: y * 2)
        return nn.Sequential(symmetric, hooked)

    with pytest.warns(StackWarning, match=r"for 1 \(Linear\)"):
        stacked = gm.stack(make(), 3)
    assert_same_as_a_loop(agents(make, 3), normal(3, 5, 4), stacked.double())


def test_a_module_without_parameters_and_one_with_options():
    assert_same_as_a_loop([nn.Flatten() for _ in range(3)], normal(3, 2, 4, 4))

    class Options(nn.Module):
        def forward(self, x, power, shift=None):
            return x**power if shift is None else x**power + shift

    x = torch.randn(3, 2)
    torch.testing.assert_close(gm.stack(Options(), 3)(x, 2), x**2)
