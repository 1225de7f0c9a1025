"""One rule, two engines: agents with real transports, in lock step, go exactly where the simulator goes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gm
from fleet import in_threads, path_of
from gossamer.algorithms import algorithm_names, parse_algorithm
from helpers import World, few, worlds

CORE = [
    "sync",
    "d-asgd",
    "p-asgd",
    "c-asgd",
    "pc-asgd",
    "dm-asgd",
    "sdm-asgd",
    "pc-asgd/theta=pv",
    "pc-asgd/theta=pv/criterion=loss",
    "pc-asgd/theta=pv/test_batch=fresh",
    "pc-asgd/theta=uniform",
    "p-asgd/horizon=last",
    "p-asgd/source=recompute",
    "d-asgd/gradient_at=mixed",
]


def worlds_of_processes() -> list[World]:
    """Where real processes are compared with the simulator: fixed and scripted delays, with lost messages."""
    return [
        World(n=3, d=5, num_steps=25, kind=kind, largest=4, seed=seed, num_clusters=2)
        for seed, kind in enumerate(("fixed", "scripted"))
    ]


def make(text: str) -> gm.Algorithm:
    name, options = parse_algorithm(text)
    return gm.algorithm(name, **options)


def processes_path(
    world: World, algorithm: gm.Algorithm, book=None, transport="shared", device="cpu", **local
) -> torch.Tensor:
    smooth = world.smooth

    def work(agent):
        i = agent.rank
        return path_of(
            agent,
            algorithm,
            torch.from_numpy(smooth.x0[i]).to(device),
            lambda x, t: smooth.one(i, x, t),
            lambda x, t: smooth.one_loss(x, i, t),
            world.lr,
            world.num_steps,
            **local,
        )

    paths = in_threads(world.network, work, book, lockstep=True, seed=world.seed, transport=transport, max_age=200)
    return torch.stack(paths, dim=1)


def assert_engines_agree(world: World, text: str, **options) -> None:
    algorithm = make(text)
    local = {name: value for name, value in options.items() if name in ("momentum", "nesterov", "weight_decay")}
    expected = world.path(algorithm, **local)
    torch.testing.assert_close(processes_path(world, algorithm, **options), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("text", CORE)
@few
@given(worlds(d=st.integers(2, 4)))
def test_agents_in_lock_step_go_where_the_simulator_goes(text, world):
    assert_engines_agree(world, text)


@pytest.mark.parametrize("kind", ["fixed", "scripted", "lossy"])
@pytest.mark.parametrize("text", [name for name in algorithm_names() if name not in CORE])
def test_rivals_in_lock_step_go_where_the_simulator_goes(text, kind):
    assert_engines_agree(World(n=4, d=3, num_steps=20, kind=kind, largest=4, seed=1), text)


@pytest.mark.parametrize("text", ["d-asgd", "p-asgd", "pc-asgd", "dm-asgd"])
@pytest.mark.parametrize("local", [{"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-2}])
def test_the_local_optimiser_is_the_simulators_too(text, local):
    assert_engines_agree(World(n=3, d=4, num_steps=20, kind="fixed", largest=4, seed=2), text, **local)
