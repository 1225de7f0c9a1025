"""A peer that changes the direction: CDMSGD against the slow truth of oracle_peers.py."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gm
import oracle_peers as slow
from spies import calls, row_of
from worlds import algorithm_from, assert_same_path, few, worlds

always = settings(deadline=None, max_examples=15)

# ---- CDMSGD


def nothing_late(world):
    links = world.network.links.numpy()
    return {"delays": lambda t: np.where(links, 0, -1)}


@always
@given(worlds(), st.sampled_from([0.0, 0.5, 0.9]), st.booleans())
def test_cdmsgd_mixes_and_adds_a_velocity(world, mu, look_ahead):
    rule = slow.Cdmsgd(mu, world.smooth.one if look_ahead else None)
    path = world.path(gm.algorithm("cdmsgd", mu=mu, look_ahead=look_ahead))
    assert_same_path(path, world.truth(rule, **nothing_late(world)))


@few
@given(worlds(), st.booleans())
def test_cdmsgd_without_momentum_is_synchronous_sgd(world, look_ahead):
    path = world.path(gm.algorithm("cdmsgd", mu=0, look_ahead=look_ahead))
    torch.testing.assert_close(path, world.path(gm.algorithm("sync")), rtol=1e-12, atol=1e-12)


@few
@given(worlds())
def test_cdmsgd_has_the_momentum_of_the_local_optimiser(world):
    """At a constant rate, eta times the local momentum is the velocity."""
    path = world.path(gm.algorithm("cdmsgd", mu=0.7))
    torch.testing.assert_close(path, world.path(gm.algorithm("sync"), momentum=0.7), rtol=1e-10, atol=1e-12)


# ---- all of them

ROWS = ["cdmsgd", "cdmsgd/look_ahead=true"]


@pytest.mark.parametrize("text", [*ROWS, *(f"{name}/gradient_at=mixed" for name in ("cdmsgd",))])
@few
@given(worlds(d=st.just(4)))
def test_one_agents_row_alone_gives_that_row_of_states_and_memory(text, world):
    algorithm = algorithm_from(text)
    for call in calls(algorithm, world, segments=(3, 1)):
        for i in {0, world.n - 1}:
            update = algorithm.step(*row_of(call, i))
            torch.testing.assert_close(update.x, call.update.x[i : i + 1], rtol=1e-11, atol=1e-12)
            for name, expected in call.update.state.items():
                torch.testing.assert_close(update.state[name], expected[i : i + 1], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["cdmsgd"])
@pytest.mark.parametrize("local", [{"momentum": 0.9}, {"weight_decay": 0.1}], ids=str)
def test_rules_with_a_momentum_of_their_own_refuse_another(name, local):
    with pytest.raises(gm.UserError, match=f"{name} has a momentum of its own"):
        gm.trajectory(name, "ring:3", lambda x, t: x, np.zeros(2), steps=1, **local)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cdmsgd/mu=1", "mu must lie in"),
        ("cdmsgd/look_ahead=true/gradient_at=mixed", "drop one of them"),
    ],
)
def test_a_wrong_option_is_refused(text, words):
    with pytest.raises(gm.UserError, match=words):
        algorithm_from(text)
