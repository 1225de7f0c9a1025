import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gossamer as gm
from gossamer.data import PARTITIONS, Batches, load_digits, partition
from gossamer.data.device_batches import DeviceBatches
from gossamer.engine.execution import make_execution
from gossamer.engine.execution.base import Setup
from gossamer.engine.gradients import TaskSource
from gossamer.engine.metrics import Evaluator
from gossamer.nn import FlatModule, make_model
from gossamer.seeding import generator

quick = settings(deadline=None, max_examples=40)
agents = st.integers(1, 12)
seeds = st.integers(0, 2**40)
labels = st.lists(st.integers(0, 5), min_size=12, max_size=80).map(torch.tensor)


def assert_disjoint_cover(shards, total):
    assert torch.equal(torch.cat(shards).sort().values, torch.arange(total))
    assert all(len(shard) for shard in shards)


@quick
@given(labels=labels, n=agents, seed=seeds)
def test_iid_shards_are_a_disjoint_cover_of_equal_size(labels, n, seed):
    shards = partition("iid", labels, n, seed)
    assert len(shards) == n
    assert_disjoint_cover(shards, len(labels))
    sizes = [len(shard) for shard in shards]
    assert max(sizes) - min(sizes) <= 1


@quick
@given(labels=labels, n=st.integers(1, 5), seed=seeds, alpha=st.sampled_from([0.3, 1.0, 30.0]))
def test_dirichlet_shards_are_a_disjoint_cover_and_none_is_empty(labels, n, seed, alpha):
    shards = partition(f"dirichlet:{alpha}", labels, n, seed)
    assert len(shards) == n
    assert_disjoint_cover(shards, len(labels))


@pytest.mark.parametrize("seed", range(20))
def test_no_dirichlet_shard_is_empty_however_skewed(seed):
    assert_disjoint_cover(partition("dirichlet:0.1", torch.arange(40) % 4, 4, seed), 40)


def skew(shards, labels):
    """The mean over agents of the share of the agent's commonest class."""
    return sum(labels[shard].bincount().max() / len(shard) for shard in shards) / len(shards)


@pytest.mark.parametrize("seed", range(5))
def test_a_smaller_alpha_is_more_skewed(seed):
    labels = torch.arange(1000) % 10
    skews = [skew(partition(f"dirichlet:{alpha}", labels, 8, seed), labels) for alpha in (0.05, 0.5, 100)]
    assert skews[0] > skews[1] > skews[2]
    assert skews[2] < 0.2 and skews[0] > 0.5


@quick
@given(n=agents, slices=st.integers(1, 4), seed=seeds)
def test_slices_of_classes_are_a_disjoint_cover_with_few_classes_each(n, slices, seed):
    labels = torch.arange(240) % 10
    shards = partition(f"classes:{slices}", labels, n, seed)
    assert_disjoint_cover(shards, 240)
    # A slice holds ceil(240 / pieces) examples at most, which reach over this many classes of 24.
    reach = math.ceil((math.ceil(240 / (n * slices)) - 1) / 24) + 1
    assert all(len(labels[shard].unique()) <= slices * reach for shard in shards)


def test_a_slice_that_fits_a_class_holds_one_class():
    labels = torch.arange(200) % 10
    assert all(len(labels[shard].unique()) == 1 for shard in partition("classes:1", labels, 10, 0))
    assert all(len(labels[shard].unique()) <= 2 for shard in partition("classes:2", labels, 10, 0))


@quick
@given(shares=st.lists(st.integers(1, 9), min_size=1, max_size=8), labels=labels, seed=seeds)
def test_shares_are_a_disjoint_cover_in_proportion(shares, labels, seed):
    shards = partition("shares:" + ",".join(map(str, shares)), labels, len(shares), seed)
    assert_disjoint_cover(shards, len(labels))
    for share, shard in zip(shares, shards, strict=True):
        # One example is everyone's; the rest is in proportion, rounded.
        assert abs(len(shard) - 1 - share / sum(shares) * (len(labels) - len(shares))) < 1


def test_replicated_shards_hold_everything():
    shards = partition("replicate", torch.zeros(7, dtype=torch.int64), 3, 0)
    assert len(shards) == 3 and all(torch.equal(shard, torch.arange(7)) for shard in shards)


@pytest.mark.parametrize("text", ["iid", "dirichlet:0.5", "classes:2", "shares:1,2,3,4"])
def test_a_partition_repeats_with_its_seed_and_differs_with_another(text):
    labels = torch.arange(100) % 10
    first, again, other = (partition(text, labels, 4, seed) for seed in (3, 3, 4))
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    assert not all(torch.equal(one, two) for one, two in zip(first, other, strict=True))


def test_the_example_in_each_help_line_works():
    labels = torch.arange(100) % 10
    for kind, text in PARTITIONS.items():
        example = text.rpartition(" ")[2]
        assert example.startswith(kind)
        partition(example, labels, 4, 0)


shards_of_any_size = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(
    lambda sizes: list(torch.arange(100, 100 + sum(sizes)).split(sizes))
)


@quick
@given(shards=shards_of_any_size, batch=st.integers(1, 12), seed=seeds)
def test_every_pass_of_batches_covers_the_shard_exactly_once(shards, batch, seed):
    batches, passes = Batches(shards, batch, seed), 3
    for agent, shard in enumerate(shards):
        steps = math.ceil(passes * len(shard) / batch)
        walk = torch.cat([batches.at(step)[agent] for step in range(steps)])[: passes * len(shard)]
        for one_pass in walk.split(len(shard)):
            assert torch.equal(one_pass.sort().values, shard)


@quick
@given(shards=shards_of_any_size, batch=st.integers(1, 12), seed=seeds, order=st.permutations(range(12)))
def test_batches_are_a_function_of_seed_and_step_alone(shards, batch, seed, order):
    sequential, random_access = Batches(shards, batch, seed), Batches(shards, batch, seed)
    expected = [sequential.at(step) for step in range(12)]
    assert all(torch.equal(random_access.at(step), expected[step]) for step in order)
    assert all(torch.equal(Batches(shards, batch, seed).at(step), expected[step]) for step in (0, 11))


@quick
@given(shards=shards_of_any_size, batch=st.integers(1, 5), seed=seeds, index=st.integers(0, 3))
def test_a_block_holds_the_batches_of_64_steps_of_the_walk(shards, batch, seed, index):
    block = Batches(shards, batch, seed).block(index)
    assert block.shape == (64, len(shards), batch)
    for agent, shard in enumerate(shards):
        draws = (generator(seed, "batches", agent, number) for number in range(64 * 4 * batch // len(shard) + 1))
        walk = torch.cat([shard[torch.randperm(len(shard), generator=draw)] for draw in draws])
        assert torch.equal(block[:, agent].flatten(), walk[64 * index * batch : 64 * (index + 1) * batch])
    batches = Batches(shards, batch, seed)
    for other in (index + 1, 0):  # forth and back
        batches.block(other)
        assert all(torch.equal(batches.at(64 * index + step), block[step]) for step in (0, 1, 63))


def test_batches_differ_between_passes_agents_seeds_and_purposes():
    shard = torch.arange(50)
    batches = Batches([shard, shard], 50, 0)
    first, second = batches.at(0), batches.at(1)
    others = (first[1], second[0], Batches([shard], 50, 1).at(0)[0], Batches([shard], 50, 0, "fresh-batches").at(0)[0])
    assert not any(torch.equal(first[0], other) for other in others)


def test_digits_are_split_once_and_for_all():
    train, test = load_digits()
    assert (len(train), len(test)) == (1438, 359)
    assert train.x.shape == (1438, 64) and train.x.dtype == torch.float32 and train.y.dtype == torch.int64
    pixels = torch.cat([train.x, test.x])
    assert float(pixels.min()) == 0.0 and float(pixels.max()) == 1.0
    assert sorted(train.y.unique().tolist()) == list(range(10)) == sorted(test.y.unique().tolist())
    again, _ = load_digits()
    assert torch.equal(train.x, again.x) and torch.equal(train.y, again.y)


def test_no_digit_is_lost_or_doubled_by_the_split():
    from sklearn import datasets

    train, test = load_digits()
    ours = torch.cat([torch.cat([part.x * 16, part.y[:, None]], dim=1) for part in (train, test)])
    raw = datasets.load_digits()
    theirs = torch.cat([torch.from_numpy(raw.data).float(), torch.from_numpy(raw.target)[:, None]], dim=1)
    assert sorted(map(tuple, ours.tolist())) == sorted(map(tuple, theirs.tolist()))


class Odd(nn.Module):
    """A model whose parameters are shared, nested and of several shapes, on inputs that are no vectors."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Conv1d(2, 3, 2), nn.Tanh(), nn.Flatten())
        self.out = nn.Linear(9, 4)
        self.scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, x):
        return self.scale * self.out(self.inner(x))


def odd_task(loss=nn.functional.cross_entropy):
    draws = torch.Generator().manual_seed(5)
    x, y = torch.randn(60, 2, 4, generator=draws), torch.randint(0, 4, (60,), generator=draws)
    return gm.Task("odd", Odd, gm.Examples(x[:40], y[:40]), gm.Examples(x[40:], y[40:]), loss=loss)


def plain_module(task, flat):
    module = task.model().double()
    nn.utils.vector_to_parameters(flat.clone(), module.parameters())
    return module


@pytest.fixture
def states():
    task = odd_task()
    flat = FlatModule(task.model())
    draws = torch.Generator().manual_seed(6)
    return task, flat, torch.randn(5, sum(flat.segments), generator=draws, dtype=torch.float64)


def evaluator(task, flat, x):
    return Evaluator(make_execution("vmap", Setup(task, flat, len(x) + 1, "cpu", x.dtype)))


def test_gradients_and_losses_are_those_of_a_loop_over_agents(states):
    task, flat, x = states
    shards = partition("iid", task.train.y, 5, 0)
    execution = make_execution("vmap", Setup(task, flat, 5, "cpu", torch.float64))
    made = [
        DeviceBatches(task.train, task.inputs, shards, 3, 0, "cpu", torch.float64, purpose=name)
        for name in ("batches", "fresh-batches")
    ]
    source = TaskSource(execution, *made, 0)
    for step in (0, 1, 7):
        for batches, gradient in (
            (Batches(shards, 3, 0), source.gradient(x, step)[0]),
            (Batches(shards, 3, 0, "fresh-batches"), source.fresh_gradient(x, step)),
        ):
            for agent, chosen in enumerate(batches.at(step)):
                module = plain_module(task, x[agent])
                loss = nn.functional.cross_entropy(module(task.train.x[chosen].double()), task.train.y[chosen])
                expected = torch.autograd.grad(loss, list(module.parameters()))
                torch.testing.assert_close(gradient[agent], torch.cat([part.reshape(-1) for part in expected]))
                if batches.purpose == "batches":
                    torch.testing.assert_close(source.gradient(x, step)[1][agent], loss.detach())
                    torch.testing.assert_close(source.loss(x, step)[agent], loss.detach())


def test_accuracy_and_loss_are_those_of_a_loop_over_agents(states, monkeypatch):
    monkeypatch.setattr("gossamer.engine.metrics.EVALUATION_EXAMPLES", 6 * 7)  # 20 examples: 7, 7 and 6
    monkeypatch.setattr("gossamer.engine.metrics.LARGE_BATCH", 1)
    task, flat, x = states
    row = evaluator(task, flat, x)(x, {})
    mean = x.mean(dim=0)
    for agent, state in enumerate([*x, mean]):
        outputs = plain_module(task, state)(task.test.x.double())
        accuracy = (outputs.argmax(dim=1) == task.test.y).double().mean()
        loss = nn.functional.cross_entropy(outputs, task.test.y)
        found = (
            (row["accuracy"][agent], row["loss"][agent])
            if agent < 5
            else (row["accuracy_average_model"], row["loss_average_model"])
        )
        assert found == pytest.approx((float(accuracy), float(loss.detach())), rel=1e-6)
    assert row["consensus"] == pytest.approx((x - mean).norm(dim=1).tolist())


def test_outputs_that_are_no_numbers_are_never_right():
    examples = gm.Examples(torch.ones(4, 1), torch.tensor([0, 0, 1, 1]))
    task = gm.Task("toy", lambda: nn.Linear(1, 2, bias=False), examples, examples)
    x = torch.tensor([[math.nan, math.nan], [math.inf, 0.0], [1.0, 0.0]])
    # argmax takes a NaN for the largest, so that class 0 would be right half of the time.
    row = evaluator(task, FlatModule(task.model()), x)(x, {})
    assert row["accuracy"] == [0.0, 0.0, 0.5] and row["accuracy_average_model"] == 0.0


def test_a_flat_module_is_the_module():
    module = Odd()
    flat = FlatModule(module)
    x = torch.randn(6, 2, 4)
    torch.testing.assert_close(flat(flat.initial(), x), module(x))
    assert flat.segments == tuple(parameter.numel() for parameter in module.parameters())
    assert sum(flat.segments) == len(flat.initial())


@pytest.mark.parametrize(("text", "widths"), [("linear", [64, 10]), ("mlp", [64, 32, 10]), ("mlp:7,5", [64, 7, 5, 10])])
def test_models_have_the_widths_of_their_name(text, widths):
    layers = [layer for layer in make_model(text, 64, 10).modules() if isinstance(layer, nn.Linear)]
    assert [layers[0].in_features, *(layer.out_features for layer in layers)] == widths


def test_a_model_without_parameters_is_refused_in_one_line():
    examples = gm.Examples(torch.zeros(8, 2), torch.zeros(8, dtype=torch.int64))
    with pytest.raises(gm.UserError, match="no parameters to train") as error:
        gm.simulate(gm.Task("toy", nn.ReLU, examples, examples), "ring:3", "sync", epochs=1)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("how", ["common", "independent", "zero"])
def test_the_start_depends_on_the_seed_alone(how):
    task = odd_task()
    first = task.initial(how, 3, 7)
    torch.manual_seed(99)
    state = torch.random.get_rng_state()
    again, other = task.initial(how, 3, 7), task.initial(how, 3, 8)
    assert torch.equal(first, again) and torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(first, other) == (how == "zero")
    assert torch.equal(first[0], first[1]) == (how != "independent")
