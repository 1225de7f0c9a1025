"""theta and the PV criterion against the slow truth of oracle.py, on any graph and under any delay."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gm
import oracle
from spies import calls
from worlds import assert_same_path, few, noise_of, some, worlds

# Two candidate steps on a line always have the same cosine, so a choice by direction needs a plane.
PLANES = st.integers(2, 5)


# ---- theta


@pytest.mark.parametrize("scope", ["agent", "network"])
@pytest.mark.parametrize("kind", ["bernoulli:0.4", "uniform"])
@few
@given(worlds())
def test_random_theta_uses_the_noise_of_its_seed_and_step(kind, scope, world):
    def rule(view, **options):
        each, shared = noise_of(world.seed, view.t, len(view.w_row))
        u = each[view.i] if scope == "agent" else shared
        return oracle.pc_asgd(view, theta=u if kind == "uniform" else float(u < 0.4), **options)

    assert_same_path(world.path(gm.algorithm("pc-asgd", theta=kind, scope=scope)), world.truth(rule))


@pytest.mark.parametrize(
    ("text", "theta_at"),
    [
        ("linear:0.1,0.9,10", lambda t: 0.1 + 0.8 * min(t, 10) / 10),
        ("piecewise:0=0.2,3=1,8=0", lambda t: 0.2 if t < 3 else 1.0 if t < 8 else 0.0),
    ],
)
@some
@given(worlds())
def test_scheduled_theta_is_a_function_of_the_step(text, theta_at, world):
    truth = world.truth(lambda view, **options: oracle.pc_asgd(view, theta=theta_at(view.t), **options))
    assert_same_path(world.path(gm.algorithm("pc-asgd", theta=text)), truth)


@some
@given(worlds(), st.integers(0, 12))
def test_consensus_steps_mix_before_they_predict(world, first):
    def rule(view, **options):
        return oracle.d_asgd(view) if view.t < first else oracle.pc_asgd(view, theta=0.3, **options)

    assert_same_path(world.path(gm.algorithm("pc-asgd", theta=0.3, consensus_steps=first)), world.truth(rule))


# ---- the PV criterion


@pytest.mark.parametrize("criterion", ["literal", "descent", "decrease", "loss", "public-code"])
@some
@given(worlds(d=PLANES), st.sampled_from(["sum", "mean", "last"]))
def test_pv_takes_the_step_with_the_larger_score(criterion, world, horizon):
    options = {"theta": "pv", "criterion": criterion, "horizon": horizon}
    if criterion == "loss":
        truth = world.truth("pc_asgd", loss=world.smooth.one_loss, **options)
    else:
        truth = world.truth("pc_asgd", **options)
    assert_same_path(world.path(gm.algorithm("pc-asgd", **options)), truth)


@pytest.mark.parametrize("criterion", ["literal", "descent", "decrease", "public-code"])
@some
@given(worlds(d=st.just(5)), st.sampled_from([(2, 3), (3, 2), (5,)]))
def test_pv_by_tensor_chooses_for_each_segment_alone(criterion, world, segments):
    options = {"theta": "pv", "criterion": criterion, "granularity": "tensor"}
    path = world.path(gm.algorithm("pc-asgd", **options), segments=segments)
    assert_same_path(path, world.truth("pc_asgd", segments=segments, **options))


@some
@given(worlds(d=PLANES), st.sampled_from(["literal", "descent", "decrease"]))
def test_a_network_wide_pv_is_the_majority_of_the_agents_choices(world, criterion):
    alone = gm.algorithm("pc-asgd", theta="pv", criterion=criterion)
    for call in calls(gm.algorithm("pc-asgd", theta="pv", criterion=criterion, scope="network"), world):
        votes = alone.step(call.own, call.inbox, call.weights, call.noise).predict
        voters = ~votes.isnan()
        assert torch.equal(voters, ~call.update.predict.isnan())
        won = float(votes[voters].mean() >= 0.5) if voters.any() else 0.0
        assert (call.update.predict[voters] == won).all()
        agree = ~voters | (votes == won)
        expected = alone.step(call.own, call.inbox, call.weights, call.noise).x
        torch.testing.assert_close(call.update.x[agree], expected[agree], rtol=0, atol=0)


@few
@given(worlds(d=PLANES), st.integers(0, 100))
def test_a_fresh_test_batch_scores_with_another_gradient(world, seed):
    """The gradient is noisy and drawn anew at every call; the truth is handed the very same draws."""
    drawn = {}
    rng = np.random.default_rng(seed)

    def noisy(x, t):
        drawn.setdefault(t, []).append(rng.standard_normal((world.n, world.d)))
        return world.smooth.gradient(x, t) + drawn[t][-1]

    options = {"theta": "pv", "criterion": "descent"}
    path = gm.trajectory(
        gm.algorithm("pc-asgd", test_batch="fresh", **options),
        world.network,
        noisy,
        world.smooth.x0,
        lr=world.lr,
        steps=world.num_steps,
        seed=world.seed,
    )
    assert all(len(calls_of_step) == 2 for calls_of_step in drawn.values())

    def rule(view, **more):
        fresh = world.smooth.one(view.i, view.x, view.t) + drawn[view.t][1][view.i]
        return oracle.pc_asgd(replace(view, g=fresh), **options, **more)

    truth = oracle.run(
        rule,
        W=world.network.W.numpy(),
        clip_of=world.clip_of,
        delays=lambda t: world.delays[t],
        x0=world.smooth.x0,
        gradient=lambda x, t: world.smooth.gradient(x, t) + drawn[t][0],
        lr=world.lr,
        steps=world.num_steps,
        startup=world.network.startup,
    )
    assert_same_path(path, truth)
