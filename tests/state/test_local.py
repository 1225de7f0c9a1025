"""The local optimiser and the learning rate: what they compute, and what is refused."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gossamer as gm
from gossamer.engine.simulation import Simulation
from gossamer.engine.trajectory import FunctionSource
from gossamer.state.local import LocalOptimizer, Schedule
from worlds import Smooth

# ---- the local optimiser


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from([0.0, 0.5, 0.9]), st.booleans(), st.sampled_from([0.0, 0.1]), st.integers(1, 8), st.integers(0, 99)
)
def test_an_agent_alone_walks_as_torch_sgd_does(momentum, nesterov, weight_decay, steps, seed):
    nesterov = nesterov and momentum > 0
    smooth = Smooth(1, 3, seed)
    x = torch.nn.Parameter(torch.from_numpy(smooth.x0.copy()))
    sgd = torch.optim.SGD([x], lr=0.1, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    local, mine, memory = (
        LocalOptimizer(momentum=momentum, nesterov=nesterov, weight_decay=weight_decay),
        x.detach().clone(),
        None,
    )
    for t in range(steps):
        x.grad = torch.from_numpy(smooth.gradient(x.detach(), t))
        sgd.step()
        v, memory = local.direction(torch.from_numpy(smooth.gradient(mine, t)), mine, memory)
        mine = mine - 0.1 * v
        torch.testing.assert_close(mine, x.detach(), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\), got 1.0"),
        ({"momentum": -0.1}, "momentum must lie"),
        ({"momentum": math.nan}, "momentum must lie"),
        ({"weight_decay": -1.0}, "weight decay must be 0 or more, got -1.0"),
        ({"weight_decay": math.inf}, "weight decay"),
        ({"nesterov": True}, "nesterov needs momentum"),
    ],
)
def test_a_wrong_optimiser_is_refused(options, words):
    with pytest.raises(gm.UserError, match=words):
        LocalOptimizer(**options)


@pytest.mark.parametrize(
    "values",
    [
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"weight_decay": 0.1},
        {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1},
    ],
)
def test_the_local_optimiser_is_that_of_torch(values):
    draws = torch.Generator().manual_seed(0)
    gradients = torch.randn(6, 3, 4, generator=draws, dtype=torch.float64)
    x = torch.randn(3, 4, generator=draws, dtype=torch.float64)
    parameter = nn.Parameter(x.clone())
    sgd = torch.optim.SGD([parameter], lr=0.1, **values)
    local, memory = LocalOptimizer(**values), None
    for gradient in gradients:
        parameter.grad = gradient
        sgd.step()
        direction, memory = local.direction(gradient, x, memory)
        x = x - 0.1 * direction
    torch.testing.assert_close(x, parameter.detach())


# ---- the learning rate


def rates(*args, **options):
    schedule = Schedule(*args, **options)
    return [schedule.at(t) for t in range(schedule.steps)]


def test_a_constant_rate_is_constant():
    assert rates(0.1, steps=5) == [0.1] * 5


def test_cosine_falls_from_the_rate_to_nothing():
    assert rates(0.2, "cosine", 8) == pytest.approx([0.1 * (1 + math.cos(math.pi * t / 8)) for t in range(8)])
    assert Schedule(0.2, "cosine", 8).at(8) == pytest.approx(0)
    assert Schedule(0.2, "cosine", 8).at(99) == pytest.approx(0)


def test_milestones_below_one_are_shares_of_the_run():
    assert rates(1.0, "step:0.5,0.75", 8) == pytest.approx([1] * 4 + [0.1] * 2 + [0.01] * 2)


def test_milestones_of_one_or_more_are_epochs():
    expected = [1] * 6 + [0.2] * 6
    assert rates(1.0, "step:2,gamma=0.2", 12, steps_per_epoch=3) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["constant", "cosine"])
def test_warm_up_rises_in_equal_steps_and_then_the_schedule_begins(text):
    found = rates(0.6, text, 10, steps_per_epoch=2, warmup_epochs=1.5)
    assert found[:3] == pytest.approx([0.2, 0.4, 0.6])
    after = [0.6 if text == "constant" else 0.3 * (1 + math.cos(math.pi * t / 7)) for t in range(7)]
    assert found[3:] == pytest.approx(after)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((0.0,), "lr must be positive and finite, got 0.0"),
        ((-1.0,), "lr must be positive"),
        ((math.nan,), "lr must be positive"),
        ((0.1, "cosin"), "did you mean 'cosine'"),
        ((0.1, "step:half"), "milestone must be a number, got 'half'"),
        ((0.1, "step:0"), "milestone 0"),
        ((0.1, "step:-1"), "milestone -1"),
        ((0.1, "step:5,gamma=x"), "gamma must be a number, got 'x'"),
        ((0.1, "constant", 10, 1, -1.0), "warmup must be 0 epochs or more"),
    ],
)
def test_a_wrong_schedule_is_refused(args, words):
    with pytest.raises(gm.UserError, match=words):
        Schedule(*args)


@pytest.mark.parametrize("text", ["constant:abc", "cosine:abc", "step:nan", "step:0.5,gamma=-1", "step:0.5,gamma=nan"])
def test_a_schedule_with_parts_that_mean_nothing_is_refused(text):
    with pytest.raises(gm.UserError, match="schedule"):
        Schedule(0.1, text, steps=10)


def test_schedules():
    assert [Schedule(0.1, "constant", 10).at(step) for step in (0, 9)] == [0.1, 0.1]
    cosine = Schedule(0.1, "cosine", 10)
    assert [cosine.at(step) for step in (0, 5, 10)] == pytest.approx([0.1, 0.05, 0.0])
    drops = Schedule(1.0, "step:0.5,0.75", 100)
    assert [drops.at(step) for step in (0, 49, 50, 74, 75)] == pytest.approx([1, 1, 0.1, 0.1, 0.01])
    epochs = Schedule(1.0, "step:160,gamma=0.2", 200 * 12, 12)
    assert [epochs.at(step) for step in (160 * 12 - 1, 160 * 12)] == pytest.approx([1, 0.2])
    warm = Schedule(1.0, "constant", 100, 10, 0.5)
    assert [warm.at(step) for step in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1])


def test_momentum_outlives_a_gradient_whose_memory_is_used_again():
    """As a step recorded on a GPU does: every gradient is written over the one before."""
    net, buffer = gm.network("ring:3", 1), torch.zeros(3, 2, dtype=torch.float64)

    class Reusing(FunctionSource):
        def gradient(self, x, step):
            return buffer.copy_(torch.full_like(buffer, step + 1.0)), None

    def end(source):
        simulation = Simulation(
            gm.algorithm("sync"),
            net,
            source,
            torch.zeros(3, 2, dtype=torch.float64),
            lr=lambda t: 0.1,
            local=LocalOptimizer(momentum=0.9),
        )
        for _ in range(4):
            simulation.step()
        return simulation.x

    fresh = FunctionSource(lambda x, t: torch.full_like(x, t + 1.0), None)
    torch.testing.assert_close(end(Reusing(lambda x, t: x, None)), end(fresh), rtol=0, atol=0)
