"""Every stacked form against a loop over the agents, for many sizes and settings."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gossamer as gm
from gossamer.nn.models.densenet import Concat
from gossamer.nn.models.preresnet import NormReLUConv2d
from gossamer.nn.stack.stacked_form import FORMS, Form
from stacks import agents, assert_same_as_a_loop, normal

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}

LAYERS = {
    "linear": (lambda: nn.Linear(3, 4), (5, 3)),
    "linear, no bias": (lambda: nn.Linear(3, 4, bias=False), (5, 3)),
    "linear, no batch": (lambda: nn.Linear(3, 4), (3,)),
    "linear, long": (lambda: nn.Linear(3, 4), (2, 5, 2, 3)),
    "linear, empty batch": (lambda: nn.Linear(3, 4), (0, 3)),
    "conv, same": (lambda: nn.Conv2d(2, 4, (3, 1), padding="same"), (2, 2, 5, 6)),
    "conv, no batch": (lambda: nn.Conv2d(2, 4, 3), (2, 5, 6)),
    "batch norm 1d": (lambda: nn.BatchNorm1d(3), (5, 3)),
    "batch norm 1d, long": (lambda: nn.BatchNorm1d(3), (4, 3, 2)),
    "batch norm 2d": (lambda: nn.BatchNorm2d(3, momentum=0.3, eps=1e-2), (4, 3, 2, 5)),
    "batch norm 3d": (lambda: nn.BatchNorm3d(3), (4, 3, 2, 2, 2)),
    "batch norm, average": (lambda: nn.BatchNorm2d(3, momentum=None), (4, 3, 2, 5)),
    "batch norm, momentum 0": (lambda: nn.BatchNorm2d(3, momentum=0.0), (4, 3, 2, 5)),
    "batch norm, no statistics": (lambda: nn.BatchNorm2d(3, track_running_stats=False), (4, 3, 2, 5)),
    "batch norm, nothing": (lambda: nn.BatchNorm2d(3, momentum=None, track_running_stats=False), (4, 3, 2, 5)),
    "batch norm, no affine": (lambda: nn.BatchNorm2d(3, affine=False), (4, 3, 2, 5)),
    "batch norm, average, no affine": (lambda: nn.BatchNorm1d(3, affine=False, momentum=None), (4, 3)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (2, 4, 3, 3)),
    "group norm, one group": (lambda: nn.GroupNorm(1, 4, eps=0.1), (2, 4)),
    "group norm, no affine": (lambda: nn.GroupNorm(4, 4, affine=False), (2, 4, 3)),
    "layer norm": (lambda: nn.LayerNorm(4), (2, 3, 4)),
    "layer norm, two dimensions": (lambda: nn.LayerNorm((3, 4), eps=0.1), (2, 5, 3, 4)),
    "layer norm, no bias": (lambda: nn.LayerNorm(4, bias=False), (2, 4)),
    "layer norm, no affine": (lambda: nn.LayerNorm(4, elementwise_affine=False), (2, 4)),
    "rms norm": (lambda: nn.RMSNorm(4), (2, 3, 4)),
    "rms norm, no affine": (lambda: nn.RMSNorm((3, 4), eps=0.1, elementwise_affine=False), (2, 3, 4)),
    "max pool 1d": (lambda: nn.MaxPool1d(2), (2, 3, 7)),
    "max pool 2d": (lambda: nn.MaxPool2d(3, stride=2, padding=1), (2, 3, 7, 6)),
    "max pool, where": (lambda: nn.MaxPool2d(2, return_indices=True), (2, 3, 4, 4)),
    "max pool, no batch": (lambda: nn.MaxPool2d(2), (3, 4, 4)),
    "max pool 3d": (lambda: nn.MaxPool3d(2), (2, 3, 4, 4, 4)),
    "average pool 2d": (lambda: nn.AvgPool2d(3, padding=1, count_include_pad=False), (2, 3, 6, 6)),
    "adaptive average pool": (lambda: nn.AdaptiveAvgPool2d((2, None)), (2, 3, 5, 5)),
    "adaptive average pool 1d": (lambda: nn.AdaptiveAvgPool1d(1), (2, 3, 5)),
    "adaptive max pool": (lambda: nn.AdaptiveMaxPool2d(1), (2, 3, 5, 5)),
    "composite": (lambda: NormReLUConv2d(3, 4, 3, stride=2), (2, 3, 6, 6)),
}


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer(name, n):
    make, shape = LAYERS[name]
    alone = agents(make, n)
    within = agents(lambda: nn.Sequential(nn.Identity(), make()), n)
    assert_same_as_a_loop(alone, normal(n, *shape))
    stacked = assert_same_as_a_loop(within, normal(n, *shape))
    assert name == "composite" or isinstance(stacked.module[1], Form)


@pytest.mark.parametrize("name", ["linear", "conv, same", "batch norm 2d", "group norm", "layer norm", "rms norm"])
def test_a_layer_in_single_precision(name):
    make, shape = LAYERS[name]
    assert_same_as_a_loop(agents(make, 3, torch.float32), normal(3, *shape, dtype=torch.float32))


@settings(max_examples=60)
@given(
    dim=st.integers(1, 3),
    n=st.integers(1, 4),
    batch=st.integers(1, 3),
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    groups=st.integers(1, 3),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
    bias=st.booleans(),
)
def test_convolutions(dim, n, batch, channels, groups, kernel, stride, padding, dilation, bias):
    channels_in, channels_out = (c * groups for c in channels)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "bias": bias}

    def make():
        return CONVOLUTIONS[dim](channels_in, channels_out, kernel, **options)

    assert_same_as_a_loop(agents(make, n), normal(n, batch, channels_in, *(6, 5, 5)[:dim]))


@settings(max_examples=30)
@given(
    n=st.integers(1, 4),
    shape=st.lists(st.integers(1, 3), min_size=0, max_size=3),
    padding=st.none() | st.integers(-2, 4),
    max_norm=st.none() | st.just(0.7),
    by_frequency=st.booleans(),
)
def test_embeddings(n, shape, padding, max_norm, by_frequency):
    def make():
        return nn.Embedding(5, 3, padding_idx=padding, max_norm=max_norm, scale_grad_by_freq=by_frequency)

    modules = agents(make, n)
    stacked = assert_same_as_a_loop(modules, lambda: (torch.randint(0, 5, (n, *shape)),))
    weights = stacked.stacked_parameters()["weight"]
    for i, module in enumerate(modules):  # max_norm shortens the rows that were looked up, in place
        torch.testing.assert_close(weights[i], module.weight)


@pytest.mark.parametrize("kind", ["embedding", "dropout", "linear", "batch norm"])
def test_an_input_that_is_the_same_for_all_agents(kind):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = {
                "embedding": nn.Embedding(4, 3),
                "dropout": nn.Dropout(0.0, inplace=True),
                "linear": nn.Linear(3, 3),
                "batch norm": nn.BatchNorm1d(3),
            }[kind]
            self.shared = torch.arange(4) if kind == "embedding" else torch.randn(4, 3).double()

        def forward(self, x):
            return x + self.layer(self.shared)

    modules = agents(Net, 3)
    for module in modules:
        module.shared = modules[0].shared  # no buffer, so that a stack has one for all
    assert_same_as_a_loop(modules, normal(3, 4, 3))


def test_batch_statistics_that_are_kept_but_no_longer_tracked():
    modules = agents(lambda: nn.BatchNorm1d(3), 3)
    for module in modules:
        module.track_running_stats = False
    assert_same_as_a_loop(modules, normal(3, 4, 3))


def test_settings_can_change_after_stacking():
    modules = agents(lambda: nn.Sequential(nn.BatchNorm1d(3)), 3)
    stacked = gm.stack(modules[0], 3)
    for module in (*modules, stacked.module):
        module[0].momentum = 0.5
    assert_same_as_a_loop(modules, normal(3, 4, 3), stacked)


def test_joining_feature_maps():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.join = nn.Conv2d(2, 3, 1), Concat()

        def forward(self, x):
            return self.join(x, self.conv(x), x)

    assert_same_as_a_loop(agents(Net, 3), normal(3, 2, 2, 4, 4))


def test_feature_maps_are_folded_without_a_copy_between_layers():
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 1)
    )
    y = gm.stack(net, 5)(torch.randn(5, 2, 3, 8, 8))
    assert y.is_cuda or y.transpose(0, 1).is_contiguous()
    assert "Clone" not in str(_nodes(y.grad_fn)[:-4])  # only the network's own input is laid out anew


def _nodes(node) -> list[str]:
    """The names of the recorded operations along the activations, last first."""
    names = []
    while node is not None:
        names.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    return names


def test_every_form_has_a_case():
    covered = {type(make()) for make, _ in LAYERS.values()}
    elsewhere = {nn.Embedding, nn.Conv1d, nn.Conv3d, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d}
    same_code = {nn.AvgPool1d, nn.AvgPool3d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool3d}
    torchs = {layer for layer, form in FORMS.items() if layer.__module__.startswith("torch.") and not form.slow}
    assert torchs - covered - elsewhere == same_code
