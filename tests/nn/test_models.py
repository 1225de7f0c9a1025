"""Models by name: sizes known from the literature, forward passes written out from the definition, and torch.func."""

import math
import re
from functools import reduce
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

from gossamer.errors import UserError
from gossamer.nn import MODELS, make_model
from gossamer.nn.models.densenet import DenseLayer
from gossamer.nn.models.preresnet import BasicBlock, Bottleneck, NormReLUConv2d
from gossamer.nn.models.transformer import Block, CausalAttention
from pages import ROOT

CIFAR = (3, 32, 32)
PAGE = ROOT / "docs" / "models.md"

SMALL = [  # text, shape of an example, classes
    ("linear", (6,), 3),
    ("mlp:9,8", (2, 3, 3), 3),
    ("cnn:6,8", (2, 7, 5), 3),
    ("preresnet:14", (2, 7, 5), 3),
    ("preresnet:11,bottleneck", (2, 6, 6), 3),
    ("densenet:10,k=3", (2, 9, 8), 3),
    ("densenet:10,k=3,plain", (2, 8, 8), 3),
    ("transformer:layers=2,width=8,heads=2", (5,), 256),
    ("transformer:layers=1,width=6,heads=3,dropout=0.5", (4,), 256),
]
every_kind = pytest.mark.parametrize(("text", "shape", "classes"), SMALL, ids=lambda value: str(value))


def size(module):
    return sum(parameter.numel() for parameter in module.parameters())


def usual(text):
    return make_model(text, *(((64,), 256) if text.startswith("transformer") else (CIFAR, 10)))


def examples(text, shape, *batch):
    draws = torch.Generator().manual_seed(3)
    if text.startswith("transformer"):
        return torch.randint(0, 256, (*batch, *shape), generator=draws)
    return torch.randn(*batch, *shape, generator=draws, dtype=torch.float64)


def made(text, shape, classes, seed=0):
    torch.manual_seed(seed)
    return make_model(text, shape, classes).double()


def plain_densenet_size(n, k, classes):
    """The weights of three blocks of n layers from 16 channels, transitions that keep all channels, and the head."""
    channels, total = 16, 3 * 16 * 9
    for block in range(3):
        for _ in range(n):
            total += 2 * channels + channels * k * 9  # norm, convolution
            channels += k
        if block < 2:
            total += 2 * channels + channels**2
    return total + 2 * channels + (channels + 1) * classes


SIZES = {"preresnet:20": 272_282, "preresnet:110": 1_730_522, "preresnet:164": 1_703_258}
SIZES |= {"densenet:100": 769_162, "densenet:40,k=12,plain": 1_019_722, "cnn": 448 + 4640 + 2049 * 32 + 330}


@pytest.mark.parametrize(("text", "expected"), SIZES.items())
def test_the_number_of_parameters_on_cifar(text, expected):
    assert size(usual(text)) == expected


def test_the_documentation_gives_these_sizes():
    rows = re.findall(r"^\| `(.+)` \| ([\d,]+) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {text: int(count.replace(",", "")) for text, count in rows} == {text: size(usual(text)) for text, _ in rows}
    assert SIZES.keys() <= dict(rows).keys()


def test_formulas_by_hand_give_the_sizes():
    assert plain_densenet_size(12, 12, 10) == SIZES["densenet:40,k=12,plain"]
    assert plain_densenet_size(3, 5, 10) == size(usual("densenet:13,k=5,plain"))
    block = 4 * 8 + 4 * 8 * 9 + 8 * 8**2 + 5 * 8  # norms, attention, mlp
    assert (256 + 64) * 8 + 3 * block + 2 * 8 + 9 * 256 == size(usual("transformer:layers=3,width=8,heads=2"))


DEPTHS = {"preresnet:20": 2, "preresnet:110": 2, "preresnet:164": 3, "preresnet:29,bottleneck": 3}
DEPTHS |= {"densenet:100": 0, "densenet:40": 0, "densenet:40,plain": 0}


@pytest.mark.parametrize(("text", "shortcuts"), DEPTHS.items())
def test_the_depth_counts_convolutions_and_the_linear_layer_without_shortcuts(text, shortcuts):
    layers = dict(make_model(text, CIFAR, 10).named_modules())
    names = [name for name, layer in layers.items() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert sum(name.endswith("shortcut") for name in names) == shortcuts
    assert len(names) - shortcuts == int(text.partition(":")[2].partition(",")[0])


def test_perceptrons_start_as_torch_layers_made_in_order():
    for text, widths in (("mlp:5,4", [6, 5, 4, 3]), ("mlp", [6, 32, 3]), ("linear", [6, 3])):
        torch.manual_seed(1)
        layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
        torch.manual_seed(1)
        module = make_model(text, (6,), 3)
        assert type(module) is (nn.Linear if text == "linear" else nn.Sequential)
        expected = nn.utils.parameters_to_vector(parameter for layer in layers for parameter in layer.parameters())
        assert torch.equal(nn.utils.parameters_to_vector(module.parameters()), expected)


def test_models_are_these_layers():
    def kinds(net):
        return " ".join(type(layer).__name__ for layer in net)

    assert kinds(make_model("mlp:5", (6,), 3)) == "Linear ReLU Linear" and kinds(usual("linear")) == "Flatten Linear"
    assert kinds(usual("mlp")) == "Flatten Linear ReLU Linear"
    assert kinds(usual("cnn")) == "Conv2d ReLU MaxPool2d " * 2 + "Flatten Linear ReLU Linear"
    preresnet, densenet = usual("preresnet:8"), usual("densenet:10")
    assert [preresnet[:end](torch.zeros(1, *CIFAR)).shape[-1] for end in (2, 3, 4)] == [32, 16, 8]
    assert kinds(densenet[2]) == kinds(densenet[4]) == "NormReLUConv2d AvgPool2d"
    assert kinds(preresnet[-1]) == kinds(densenet[-1]) == "BatchNorm2d ReLU AdaptiveAvgPool2d Flatten Linear"


@pytest.mark.parametrize("text", ["preresnet:56", "densenet:40,k=12"])
def test_convolutions_start_as_he_says_and_norms_at_one_and_zero(text):
    torch.manual_seed(0)
    for layer in make_model(text, CIFAR, 10).modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert (layer.weight == 1).all() and (layer.bias == 0).all()
        elif isinstance(layer, nn.Conv2d):
            assert layer.bias is None
            ratio = float(layer.weight.detach().std()) / math.sqrt(2 / (layer.out_channels * layer.kernel_size[0] ** 2))
            assert ratio == pytest.approx(1, abs=4 / math.sqrt(2 * layer.weight.numel()))  # four standard errors


@every_kind
def test_outputs_have_a_value_for_each_class_and_gradients_reach_every_parameter(text, shape, classes):
    module, x = made(text, shape, classes), examples(text, shape, 4)
    outputs = module(x)
    assert outputs.shape == ((4, *shape, classes) if text.startswith("transformer") else (4, classes))
    target = torch.arange(outputs[..., 0].numel()) % classes
    nn.functional.cross_entropy(outputs.flatten(0, -2), target).backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


@every_kind
def test_under_vmap_agents_compute_what_each_computes_alone(text, shape, classes):
    text = text.partition(",dropout")[0]  # random numbers differ; the next test has them
    modules = [made(text, shape, classes, seed) for seed in range(3)]
    x = examples(text, shape, 3, 4)
    parameters, buffers = stack_module_state(modules)

    def loss(parameters, buffers, x):
        outputs = functional_call(modules[0], (parameters, buffers), (x,))
        return outputs.square().mean(), outputs

    gradients, outputs = vmap(grad(loss, has_aux=True))(parameters, buffers, x)
    for agent, module in enumerate(modules):
        (alone := module(x[agent])).square().mean().backward()
        torch.testing.assert_close(outputs[agent], alone)
        alone_gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
        torch.testing.assert_close({k: v[agent] for k, v in gradients.items()}, alone_gradients)
        torch.testing.assert_close({k: v[agent] for k, v in buffers.items()}, dict(module.named_buffers()))


def test_dropout_differs_between_agents_under_vmap_and_is_off_in_evaluation():
    module, x = made("transformer:width=8,heads=2,dropout=0.5", (5,), 256), examples("transformer", (5,), 4)
    assert sum(isinstance(layer, nn.Dropout) for layer in module.modules()) == 5  # the embedding and 2 x 2 branches
    parameters, _ = stack_module_state([module, module])
    outputs = vmap(lambda p: functional_call(module, p, (x,)), randomness="different")(parameters)
    assert not torch.allclose(outputs[0], outputs[1])
    assert torch.equal(module.eval()(x), module(x))


def test_a_transformer_sees_no_byte_ahead():
    module, x = made("transformer:layers=2,width=16,heads=4", (9,), 256), examples("transformer", (9,), 2)
    before = module(x)
    for t in range(9):
        changed = x.clone()
        changed[:, t] = (changed[:, t] + 1) % 256
        after = module(changed)
        torch.testing.assert_close(after[:, :t], before[:, :t], rtol=0, atol=1e-14)
        assert all((after[:, u] - before[:, u]).abs().max() > 1e-9 for u in range(t, 9))
        torch.testing.assert_close(module(x[:, : t + 1]), before[:, : t + 1])


def convolve(x, weight, stride, padding):
    """Correlate x [b, c, h, w] with weight [k, c, m, m], one output pixel after the other."""
    padded, m = nn.functional.pad(x, [padding] * 4), weight.shape[-1]
    rows, columns = (range(0, side - m + 1, stride) for side in padded.shape[2:])
    y = torch.empty(len(x), len(weight), len(rows), len(columns), dtype=x.dtype)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            patch = padded[:, None, :, row : row + m, column : column + m]
            y[:, :, i, j] = (patch * weight).sum(dim=(2, 3, 4))
    return y


def standard(x, dims):
    return (x - x.mean(dim=dims, keepdim=True)) / (x.var(dim=dims, keepdim=True, correction=0) + 1e-5).sqrt()


def unit(layer, x, stride=1):
    """conv(relu(norm(x))) with the batch's own mean and variance."""
    scale, shift = (parameter[None, :, None, None] for parameter in (layer.norm.weight, layer.norm.bias))
    normal = standard(x, (0, 2, 3)) * scale + shift
    return convolve(normal.clamp(min=0), layer.conv.weight, stride, layer.conv.kernel_size[0] // 2)


def shaken(module):
    """The module with parameters that are nothing special, in float64."""
    draws = torch.Generator().manual_seed(4)
    for parameter in module.double().parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=draws, dtype=torch.float64))
    return module


@pytest.mark.parametrize(("channels", "stride"), [(3, 1), (5, 1), (3, 2)])
@pytest.mark.parametrize("kind", [BasicBlock, Bottleneck])
@torch.no_grad()
def test_a_residual_block_is_its_definition(kind, channels, stride):
    block, x = shaken(kind(channels, 3, stride)), examples("image", (channels, 5, 4), 2)
    basic = kind is BasicBlock
    branch = unit(block.second, unit(block.first, x, stride if basic else 1), 1 if basic else stride)
    branch = branch if basic else unit(block.third, branch)
    assert (block.shortcut is None) == (stride == 1 and channels == 3 * kind.expansion)
    kept = x if block.shortcut is None else convolve(x, block.shortcut.weight, stride, 0)
    torch.testing.assert_close(block(x), kept + branch, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("bottleneck", [True, False])
@torch.no_grad()
def test_a_dense_layer_is_its_definition(bottleneck):
    layer, x = shaken(DenseLayer(5, 2, bottleneck=bottleneck)), examples("image", (5, 4, 3), 2)
    units = [part for part in layer.modules() if isinstance(part, NormReLUConv2d)]
    y, new = layer(x), reduce(lambda x, part: unit(part, x), units, x)
    assert torch.equal(y[:, :5], x) and len(units) == 1 + bottleneck
    assert units[0].conv.out_channels == (8 if bottleneck else 2)
    torch.testing.assert_close(y[:, 5:], new, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_attention_is_its_definition():
    attention, x = shaken(CausalAttention(6, 2)), examples("vectors", (4, 6), 3)
    q, k, v = (x @ attention.query_key_value.weight.T + attention.query_key_value.bias).split(6, dim=-1)
    gathered = torch.zeros_like(x)
    for t in range(4):
        for head in (slice(0, 3), slice(3, 6)):
            scores = torch.stack([(q[:, t, head] * k[:, s, head]).sum(dim=-1) / math.sqrt(3) for s in range(t + 1)])
            weights = scores.exp() / scores.exp().sum(dim=0)
            gathered[:, t, head] = sum(weights[s][:, None] * v[:, s, head] for s in range(t + 1))
    torch.testing.assert_close(attention(x), gathered @ attention.out.weight.T + attention.out.bias)


@torch.no_grad()
def test_a_block_adds_its_two_branches_to_its_input_one_after_the_other():
    block, x = shaken(Block(6, 2, 0.0)), examples("vectors", (4, 6), 3)
    norm, first, _, second = block.mlp
    y = x + block.attention[1](block.attention[0](x))
    hidden = (standard(y, -1) * norm.weight + norm.bias) @ first.weight.T + first.bias
    hidden = hidden * (1 + (hidden / math.sqrt(2)).erf()) / 2
    torch.testing.assert_close(block(x), y + hidden @ second.weight.T + second.bias)


def test_the_example_in_each_help_line_works():
    for kind, text in MODELS.items():
        example = text.rpartition(" ")[2]
        assert example.partition(":")[0] == kind
        usual(example)


@pytest.mark.parametrize(
    ("text", "shape", "says"),
    [
        ("prersnet:110", CIFAR, "unknown model 'prersnet'; did you mean 'preresnet'?"),
        ("mlp:0", (6,), "width 0; use 1 or more, as mlp:64,32"),
        ("cnn:norm", CIFAR, "has no option 'norm'; write it like cnn:16,32"),
        ("cnn", (64,), "needs images (channels, height, width), got inputs of shape (64,); use mlp or linear"),
        ("cnn:4,4,4", (1, 9, 7), "needs images of 8 x 8 pixels or more, got 9 x 7"),
        ("densenet:39", CIFAR, "has depth 39, but a densenet has 6n + 4 layers; the nearest is 40"),
        ("preresnet:21", CIFAR, "has depth 21, but a preresnet has 6n + 2 layers; the nearest is 20"),
        ("preresnet:30,bottleneck", CIFAR, "a preresnet of bottlenecks has 9n + 2 layers; the nearest is 29"),
        ("preresnet:20,botleneck", CIFAR, "unknown option of preresnet 'botleneck'; did you mean 'bottleneck'?"),
        ("densenet:40,k=0", CIFAR, "has k=0; use 1 or more"),
        ("transformer:heads=3", (8,), "has width 64, which 3 heads do not divide; use width=66"),
        ("transformer:dropout=nan", (8,), "has dropout=nan; use a number in [0, 1)"),
        ("transformer:width", (8,), "option 'width' of model 'transformer:width' needs a value; write width=VALUE"),
        ("transformer", (2, 2), "reads text as bytes, of shape (length,) and 256 classes, got shape (2, 2)"),
    ],
)
def test_a_wrong_text_is_one_line(text, shape, says):
    with pytest.raises(UserError) as error:
        make_model(text, shape, 256)
    assert says in str(error.value) and "\n" not in str(error.value)
