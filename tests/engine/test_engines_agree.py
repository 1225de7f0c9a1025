"""One rule, two engines: agents with real transports, in lock step, go exactly where the simulator goes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines import CORE, assert_engines_agree
from gossamer.algorithms import algorithm_names
from worlds import World, worlds


@pytest.mark.parametrize("text", CORE)
@settings(deadline=None, max_examples=4)  # every one starts threads with transports of their own
@given(worlds(d=st.integers(2, 4)))
def test_agents_in_lock_step_go_where_the_simulator_goes(text, world):
    assert_engines_agree(world, text)


@pytest.mark.parametrize("kind", ["fixed", "scripted", "lossy"])
@pytest.mark.parametrize("text", [name for name in algorithm_names() if name not in CORE])
def test_rivals_in_lock_step_go_where_the_simulator_goes(text, kind):
    assert_engines_agree(World(n=4, d=3, num_steps=20, kind=kind, largest=4, seed=1), text)


@pytest.mark.parametrize("text", ["d-asgd", "p-asgd", "pc-asgd", "dm-asgd", "dc-s3gd"])
@pytest.mark.parametrize("local", [{"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-2}])
def test_the_local_optimiser_is_the_simulators_too(text, local):
    assert_engines_agree(World(n=3, d=4, num_steps=20, kind="fixed", largest=4, seed=2), text, **local)
