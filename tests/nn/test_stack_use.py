"""Stacks in use: forms of one's own, loading and copying, precision, layouts, and what a user can do wrong."""

import copy
import warnings

import pytest
import torch
from torch import nn

import gossamer as gm
from gossamer.errors import UserError
from gossamer.nn.stack import Form, register_form
from gossamer.nn.stack.stacked_form import FORMS
from stacks import Residual, agents, assert_same_as_a_loop, normal


def test_a_registered_form_replaces_a_whole_subtree_and_takes_options(monkeypatch):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x, *, plus=None):
            return 2 * self.linear(x) if plus is None else 2 * self.linear(x) + plus

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.scaled = Scaled()

        def forward(self, x):
            return self.scaled(self.scaled(x), plus=x)

    class ScaledForm(Form):
        def run(self, x, *, plus=None):
            calls.append(x.shape)
            y = 2 * torch.baddbmm(self.linear.bias.unsqueeze(1), x, self.linear.weight.mT)
            return y if plus is None else y + plus

    calls = []
    monkeypatch.setitem(FORMS, Scaled, Form)  # so that the table is put back
    register_form(Scaled, ScaledForm)
    stacked = assert_same_as_a_loop(agents(Net, 3), normal(3, 5, 4))
    assert set(calls) == {(3, 5, 4)}
    assert isinstance(stacked.module.scaled, Scaled)


def test_dropout_draws_a_mask_for_each_agent_and_keeps_the_mean():
    torch.manual_seed(0)
    for layer, shape in ((nn.Dropout(0.3), (4, 50, 40)), (nn.Dropout2d(0.3), (4, 50, 40, 1, 1))):
        y = gm.stack(nn.Sequential(layer, nn.Identity()), 4)(torch.ones(shape))
        assert y.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
        assert all(not torch.equal(y[i], y[j]) for i in range(4) for j in range(i))
        torch.testing.assert_close(y.mean(dim=(1, 2)).flatten(), torch.ones(4), rtol=0, atol=0.1)  # 6 deviations
        assert torch.equal(gm.stack(layer, 4).eval()(torch.ones(shape)), torch.ones(shape))


def test_load_and_unstack_are_each_others_inverse_and_copy():
    modules = agents(Residual, 3)
    modules[0].again.eval()
    modules[0].head.requires_grad_(False)
    stacked = gm.stack(modules[0], 3)
    assert not stacked.stacked_parameters()["head.weight"].requires_grad
    assert stacked.module.norm.training and not stacked.module.again[1].training
    assert stacked.load(modules) is stacked
    for module, back in zip(modules, stacked.unstack(), strict=True):
        assert type(back) is Residual and type(back.conv) is nn.Conv2d
        assert not back.head.weight.requires_grad and back.conv.weight.requires_grad
        assert back.norm.training and not back.again[1].training
        assert list(back.state_dict()) == list(module.state_dict())
        values = zip(back.state_dict().values(), module.state_dict().values(), strict=True)
        assert all(torch.equal(mine, theirs) for mine, theirs in values)
        back.conv.weight.data.zero_()
    assert all(p.abs().sum() > 0 for p in stacked.stacked_parameters().values())
    assert all(b.conv.weight.dtype == torch.float32 for b in stacked.float().unstack())
    assert not any(part.training for part in stacked.eval().unstack()[0].modules())


def test_copies_of_a_stack_are_apart_and_work_after_a_pass():
    modules = agents(Residual, 2)
    stacked = gm.stack(modules[0], 2)
    stacked(torch.randn(2, 2, 3, 6, 6).double())
    other = copy.deepcopy(stacked)
    before = {name: tensor.clone() for name, tensor in stacked.state_dict().items()}
    assert_same_as_a_loop(modules, normal(2, 2, 3, 6, 6), other)
    assert all(torch.equal(before[name], tensor) for name, tensor in stacked.state_dict().items())


def test_frozen_parameters_get_no_gradient_and_no_grad_records_nothing():
    modules = agents(lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), 3)
    for module in modules:
        module[0].requires_grad_(False)
    stacked = assert_same_as_a_loop(modules, normal(3, 5, 4))
    assert stacked.stacked_parameters()["0.weight"].grad is None
    with torch.no_grad():
        assert not stacked(torch.randn(3, 5, 4).double()).requires_grad


def test_bfloat16():
    modules = agents(Residual, 2, torch.bfloat16)
    stacked = gm.stack(modules[0], 2).load(modules)
    x = torch.randn(2, 4, 3, 6, 6, dtype=torch.bfloat16)
    y = stacked(x)
    y.sum().backward()
    assert y.dtype == torch.bfloat16
    assert all(p.grad.dtype == torch.bfloat16 for p in stacked.parameters())
    for i, module in enumerate(modules):
        torch.testing.assert_close(y[i], module(x[i]), rtol=0.1, atol=0.1)


def test_settings_of_torch_are_put_back():
    torch.backends.cuda.enable_flash_sdp(True)
    torch.backends.mha.set_fastpath_enabled(True)
    with pytest.raises(RuntimeError):
        gm.stack(nn.Linear(3, 3), 2)(torch.randn(2, 5, 4))
    assert torch.backends.mha.get_fastpath_enabled() and torch.backends.cuda.flash_sdp_enabled()


class Views(nn.Module):
    """Counts on the layout that torch gives one agent's feature maps."""

    where: bool | None = None  # in training only, in evaluation only, always

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv, self.drop = nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3), nn.Dropout(0.5)

    def forward(self, x):
        y = self.conv(self.norm(self.drop(x)))
        if self.where in (None, self.training):
            y.view(-1)[:5] += 1  # also writes to y
        return y


def test_code_that_counts_on_a_layout_gets_it_and_a_failed_pass_leaves_no_trace():
    for where in (None, True, False):
        modules = agents(Views, 3)
        for module in modules:
            module.drop.p, module.where = 0.0, where
        assert_same_as_a_loop(modules, normal(3, 2, 3, 5, 5))

    modules[0].drop.p, modules[0].where = 0.5, None
    stacked, x = gm.stack(modules[0], 3).train(), torch.randn(3, 2, 3, 5, 5).double()
    torch.manual_seed(1)
    first = stacked(x)  # fails once, unseen
    torch.manual_seed(1)
    assert torch.equal(first, stacked(x))
    assert stacked.module.norm.num_batches_tracked.tolist() == [5, 5, 5]


class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Reads(nn.Module):
    def forward(self, x):
        return x * x.max().item()


class Selects(nn.Module):
    def forward(self, x):
        return x[x > 0]


class Differentiates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return torch.func.grad(lambda x: self.linear(x).sum())(x)


@pytest.mark.parametrize("make", [Branches, Reads, Selects, Differentiates])
def test_code_that_vmap_cannot_run_is_explained_in_one_line(make):
    stacked = gm.stack(make(), 2)
    with pytest.raises(UserError, match=r"cannot be stacked.*use execution=loop$") as caught:
        stacked(torch.randn(2, 5, 3))
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError):  # nothing is left behind that would change the second answer
        stacked(torch.randn(2, 5, 3))


def test_mistakes_are_explained():
    stacked = gm.stack(nn.Linear(3, 2), 2)
    with pytest.raises(UserError, match="cannot stack 0 agents"):
        gm.stack(nn.Linear(3, 2), 0)
    with pytest.raises(UserError, match="stacked already"):
        gm.stack(nn.Sequential(stacked), 2)
    with pytest.raises(UserError, match="run the module once"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch: lazy modules are young
        gm.stack(nn.LazyLinear(3), 2)
    with pytest.raises(UserError, match=r"\[3, 5, 3\] but there are 2 agents"):
        stacked(torch.randn(3, 5, 3))
    with pytest.raises(UserError, match=r"\[\] but there are 2 agents"):
        stacked(torch.tensor(1.0))
    with pytest.raises(UserError, match="3 modules into a stack of 2"):
        stacked.load([nn.Linear(3, 2)] * 3)
    with pytest.raises(UserError, match=r"module 1 has \[2, 4\] as 'weight' where the stack has \[2, 3\]"):
        stacked.load([nn.Linear(3, 2), nn.Linear(4, 2)])
    with pytest.raises(UserError, match=r"module 0 has nothing as 'bias'"):
        stacked.load([nn.Linear(3, 2, bias=False), nn.Linear(3, 2)])
    with pytest.raises(UserError, match=r"module 0 has \[3\] as '0.bias' where the stack has nothing"):
        gm.stack(nn.Sequential(nn.Linear(2, 3, bias=False)), 1).load([nn.Sequential(nn.Linear(2, 3))])
    with pytest.raises(UserError, match="4 channels"):
        gm.stack(nn.Conv2d(2, 2, 1), 2)(torch.randn(2, 1, 4, 3, 3))
    with pytest.raises(UserError, match=r"takes \[batch, channels, height, width\]"):
        gm.stack(nn.MaxPool2d(2), 2)(torch.randn(2, 1, 4))
    table = gm.stack(nn.Embedding(4, 2), 2).cpu()
    for wrong in ([[4], [0]], [[0], [-1]]):  # in no table of its own, yet in another agent's
        with pytest.raises(IndexError):
            table(torch.tensor(wrong, device="cpu"))
