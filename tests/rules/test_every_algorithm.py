"""Laws that every rule obeys. A new rule is tested here as soon as it is registered."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gm
from gossamer.algorithms import algorithm_class, algorithm_names
from spies import calls
from worlds import World, algorithm_from

EVERY = [
    *algorithm_names(),
    *(f"pc-asgd/theta={theta}" for theta in ("0", "1", "bernoulli:0.5", "uniform", "linear:0,1,20")),
    "pc-asgd/theta=piecewise:0=0.2,5=0.8",
    *(f"pc-asgd/theta=pv/criterion={name}" for name in ("literal", "descent", "decrease", "loss", "public-code")),
    "pc-asgd/theta=pv/granularity=tensor",
    "pc-asgd/theta=pv/scope=network",
    *(f"pc-asgd/predictor={name}" for name in ("trend", "own")),
    "pc-asgd/theta=0.3",
    "pc-asgd/theta=kalman",
    "pc-asgd/theta=kalman/predictor=trend",
    "pc-asgd/theta=pv/criterion=hindsight",
    "pc-asgd/damping=0.2",
]

# Laws that a rule does not obey, each with the reason; what it obeys instead is in the tests of its family.
# differs from synchronous SGD when nothing is late
NOT_SYNCHRONOUS: dict[str, str] = {
    "sgp": "descends, then mixes",
    "dga": "descends, then mixes the steps and not the states",
    "dsgt": "descends along the tracked mean, then mixes",
    "r-fast": "descends along the tracked mean, then mixes",
    "ad-psgd": "averages with one neighbour at a time",
    "local-sgd": "averages at every eighth step only",
    "swift": "averages at every other step only",
    "feddelavg": "averages at every eighth step only",
    "diloco": "averages at every twentieth step only",
    "sdm-asgd": "damps what is not trend, late or not",
    "pc-asgd/damping=0.2": "damps what is not trend, late or not",
    "dc-s3gd": "averages steps one step later, and compensates the gradient",
    "cdmsgd": "has a momentum of its own",
}
NOT_RENAMED: dict[str, str] = {}  # agents differ by their numbers
LEARNING_RATES: dict[str, float] = {}  # for rules that are unstable at 0.3

# Rules with a server, which must have a link with every agent.
SERVED = (
    "asgd",
    "dc-asgd-c",
    "dc-asgd-a",
    "dasgd-is",
    "gap-aware",
    "delay-adaptive",
    "delayed-nesterov",
    "adaptive-braking",
)
NOT_SYNCHRONOUS |= dict.fromkeys(SERVED, "workers take the server's model a step later")
NOT_RENAMED |= dict.fromkeys(SERVED, "the server is chosen by its number")
# The first gradients have a small mean square, hence much curvature; momentum makes ten steps of one.
LEARNING_RATES |= {"dc-asgd-a": 0.15, "delayed-nesterov": 0.015}


def graph_for(text, graph):
    """The graph, or the complete one of as many agents for rules that need a server."""
    return f"complete:{graph.partition(':')[2]}" if text in SERVED else graph


every_algorithm = pytest.mark.parametrize("text", EVERY)
few = settings(deadline=None, max_examples=3)

STARTUPS = st.sampled_from(["wait", "min", "full"])


def own_loss(x, t):
    return 0.5 * (x**2).sum(dim=1)


@pytest.mark.parametrize("name", algorithm_names())
def test_says_where_it_comes_from(name):
    rule = algorithm_class(name)
    assert "origin" in vars(rule) and rule.origin in ("published", "adapted", "ours")
    assert rule.revision >= 1


@every_algorithm
@settings(deadline=None, max_examples=2)  # 120 steps each
@given(st.integers(1, 6), st.integers(0, 100), STARTUPS)
def test_finds_the_minimum_of_a_quadratic_under_delay(text, delay, seed, startup):
    net = gm.network("clusters:2,2", delay, startup=startup)
    target = torch.from_numpy(np.random.default_rng(seed).standard_normal(4))
    x0 = target + torch.from_numpy(np.random.default_rng(seed + 1).standard_normal((4, 4)))

    def gradient(x, t):
        return 0.5 * (x - target)

    def loss(x, t):
        return 0.25 * ((x - target) ** 2).sum(dim=1)

    path = gm.trajectory(
        algorithm_from(text),
        net,
        gradient,
        x0,
        lr=LEARNING_RATES.get(text, 0.3),
        steps=120,
        loss=loss,
        segments=(2, 2),
        seed=seed,
    )
    assert (path[-1] - target).norm() < 0.05 * (x0 - target).norm()


@every_algorithm
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keeps_the_dtype(text, dtype):
    net = gm.network("clusters:2,2", 3)
    x0 = torch.linspace(-1, 1, 12, dtype=dtype).reshape(4, 3)
    path = gm.trajectory(algorithm_from(text), net, lambda x, t: x, x0, steps=6, loss=own_loss)
    assert path.dtype == dtype and path.isfinite().all()


@every_algorithm
@few
@given(st.integers(0, 5), st.integers(0, 100), st.sampled_from(["fixed", "matrix", "lossy"]))
def test_leaves_its_inputs_and_the_start_unchanged(text, delay, seed, kind):
    world = World(n=4, d=4, num_steps=7, kind=kind, largest=delay, seed=seed)
    x0 = world.smooth.x0.copy()
    for call in calls(algorithm_from(text), world, segments=(2, 2)):
        assert call.update.x.data_ptr() != call.own.x.data_ptr()
    np.testing.assert_array_equal(world.smooth.x0, x0)
    world.path(algorithm_from(text))
    np.testing.assert_array_equal(world.smooth.x0, x0)


@every_algorithm
@few
@given(st.integers(0, 6), st.integers(0, 100), STARTUPS)
def test_consensus_without_gradient_is_a_fixed_point(text, delay, seed, startup):
    net = gm.network(graph_for(text, "exponential:6"), delay, clusters="2,4", startup=startup)
    point = torch.from_numpy(np.random.default_rng(seed).standard_normal(3))
    path = gm.trajectory(algorithm_from(text), net, lambda x, t: 0 * x, point, steps=15, loss=own_loss, seed=seed)
    torch.testing.assert_close(path, point.expand_as(path), rtol=0, atol=1e-13)


@pytest.mark.parametrize("text", [text for text in EVERY if text not in NOT_SYNCHRONOUS])
@pytest.mark.parametrize("clip_weights", ["rebuilt", "renormalised"])
@pytest.mark.parametrize("graph", ["ring:5", "star:4", "clusters:2,3", "random:6,p=0.5", "path:3"])
def test_is_synchronous_sgd_when_nothing_is_late(text, graph, clip_weights):
    net = gm.network(graph, 0, clip_weights=clip_weights, lazy=graph == "star:4")
    x0 = torch.from_numpy(np.random.default_rng(0).standard_normal((net.num_agents, 3)))

    def path(algorithm):
        return gm.trajectory(algorithm, net, lambda x, t: torch.sin(x + t), x0, steps=10, loss=own_loss)

    torch.testing.assert_close(path(algorithm_from(text)), path(gm.algorithm("sync")), rtol=1e-12, atol=1e-12)


@every_algorithm
@few
@given(st.integers(0, 6), st.integers(0, 100))
def test_declares_what_it_sends_and_keeps(text, delay, seed):
    algorithm = algorithm_from(text)
    message = algorithm.message
    assert message and len(set(message)) == len(message) and set(algorithm.message_across) <= set(message)
    assert algorithm.numbers | algorithm.totals <= set(message)
    for call in calls(algorithm, World(n=4, d=4, num_steps=5, largest=delay, seed=seed)):
        sent = {"x": call.own.x, "g": call.own.g, "v": call.own.v, **algorithm.send(call.own)}
        for name in message:
            assert sent[name].shape == (4, 1 if name in algorithm.numbers else 4)
            assert sent[name].dtype == torch.float64 or name not in algorithm.totals
        assert {name: (t.shape, t.dtype) for name, t in call.update.state.items()} == {
            name: (t.shape, t.dtype) for name, t in call.own.state.items()
        }
        rows = {4, len(call.own.place.links)}  # one for each agent, or for each link
        assert all(t.shape[0] in rows for t in call.own.state.values())


@every_algorithm
@few
@given(st.integers(0, 100))
def test_runs_again_to_the_last_bit(text, seed):
    net = gm.network("clusters:2,3", "uniform:0,5", loss=0.2)
    x0 = torch.from_numpy(np.random.default_rng(seed).standard_normal((5, 3)))

    def path():
        return gm.trajectory(
            algorithm_from(text), net, lambda x, t: torch.sin(x + t), x0, steps=12, loss=own_loss, seed=seed
        )

    assert path().numpy().tobytes() == path().numpy().tobytes()


@every_algorithm
@few
@given(st.integers(1, 6), st.integers(0, 100), STARTUPS)
def test_moving_the_origin_moves_the_path(text, delay, seed, startup):
    """On linear losses nothing knows where zero is."""
    net = gm.network(graph_for(text, "ring:5"), delay, clusters="2,3", startup=startup)
    rng = np.random.default_rng(seed)
    x0, slopes = (torch.from_numpy(rng.standard_normal((5, 3))) for _ in range(2))
    shift = torch.from_numpy(rng.standard_normal(3))

    def gradient(x, t):
        return slopes * torch.cos(slopes + t)

    def path(start):
        return gm.trajectory(
            algorithm_from(text),
            net,
            gradient,
            start,
            steps=15,
            loss=lambda x, t: (gradient(x, t) * x).sum(dim=1),
            seed=seed,
        )

    torch.testing.assert_close(path(x0 + shift), path(x0) + shift, rtol=0, atol=1e-9)


# Chance belongs to the number of an agent, so rules that draw are not on this list.
@pytest.mark.parametrize("text", [text for text in EVERY if not algorithm_from(text).draws and text not in NOT_RENAMED])
@few
@given(st.integers(1, 5), st.integers(0, 100))
def test_renaming_the_agents_renames_the_path(text, delay, seed):
    world = World(n=5, d=4, num_steps=10, kind="matrix", largest=delay, seed=seed)
    order = np.random.default_rng(seed).permutation(5)
    matrix = world.network.delay.matrix.numpy()
    everyone = {"clusters": None, "startup": "full"}
    net = gm.network("complete:5", matrix, **everyone)
    renamed = gm.network("complete:5", matrix[np.ix_(order, order)], **everyone)
    back = np.argsort(order)

    def run(network, rows):
        def undo(x):
            return np.asarray(x)[np.argsort(rows)]

        return gm.trajectory(
            algorithm_from(text),
            network,
            lambda x, t: world.smooth.gradient(undo(x), t)[rows],
            world.smooth.x0[rows],
            lr=0.05,
            steps=10,
            loss=lambda x, t: world.smooth.loss(undo(x), t)[rows],
            segments=(2, 2),
        )

    path, other = run(net, np.arange(5)), run(renamed, order)
    torch.testing.assert_close(other[:, back], path, rtol=1e-9, atol=1e-10)
