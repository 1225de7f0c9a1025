"""Stacks on a GPU, where there is one: the layout of images, and capture in a CUDA graph."""

import pytest
import torch
from torch import nn

import gossamer as gm
from gossamer.nn import make_model
from gossamer.nn.stack import StackWarning
from stacks import agents, assert_same_as_a_loop, normal


def test_the_channels_of_images_lie_together():
    unit = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 1))
    y = gm.stack(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), unit), 5).cuda()(torch.randn(5, 2, 3, 8, 8).cuda())
    assert y.stride(2) == 1


@pytest.mark.parametrize("text", ["preresnet:20", "densenet:40", "cnn"])
def test_a_model_is_the_same_as_a_loop(text):
    modules = [module.cuda() for module in agents(lambda: make_model(text, (3, 8, 8), 4), 2)]
    draw = normal(2, 2, 3, 8, 8)
    assert_same_as_a_loop(modules, lambda: tuple(x.cuda() for x in draw()), gm.stack(modules[0], 2))


def test_padded_averages_whose_gradients_torch_gets_wrong_in_channels_last():
    modules = [module.cuda() for module in agents(lambda: nn.AvgPool2d(3, stride=2, padding=1), 3)]
    assert_same_as_a_loop(modules, lambda: (torch.randn(3, 2, 4, 6, 6).double().cuda(),))


def test_recurrent_layers_are_laid_out_anew_for_each_agent():
    modules = [module.cuda() for module in agents(lambda: nn.LSTM(4, 3, num_layers=2), 3)]
    with pytest.warns(StackWarning):
        stacked = gm.stack(modules[0], 3)
    stacked.cpu().double().cuda().load(modules)
    x = torch.randn(3, 5, 2, 4).double().cuda()
    stacked(x)[0].square().sum().backward()
    for i, module in enumerate(modules):
        module(x[i])[0].square().sum().backward()
        for many, one in zip(stacked.parameters(), module.parameters(), strict=True):
            torch.testing.assert_close(many.grad[i], one.grad)


def test_a_step_can_be_captured_in_a_graph():
    stacked = gm.stack(make_model("preresnet:20", (3, 8, 8), 4), 3).cuda().bfloat16()
    x = torch.randn(3, 4, 3, 8, 8).cuda().bfloat16()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            stacked(x).float().square().sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    stacked.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = stacked(x)
        y.float().square().sum().backward()
    stacked.eval()  # the statistics that the replays move no longer matter
    graph.replay()
    counts = next(b for name, b in stacked.stacked_buffers().items() if name.endswith("num_batches_tracked"))
    assert counts.tolist() == [3, 3, 3]  # two steps before the capture, none in it, one replay
    assert y.isfinite().all() and all(p.grad.isfinite().all() for p in stacked.parameters())
