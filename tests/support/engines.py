"""Agents with real transports in lock step, beside the simulator: the rules, the worlds and the comparison."""

import torch

import gossamer as gm
from fleet import in_threads, path_of
from gossamer.algorithms import parse_algorithm
from worlds import World

CORE = [
    "sync",
    "d-asgd",
    "p-asgd",
    "c-asgd",
    "pc-asgd",
    "dm-asgd",
    "sdm-asgd",
    "pc-asgd/theta=0.3",
    "pc-asgd/predictor=trend/damping=0.2",
    "pc-asgd/predictor=own/theta=kalman",
    "pc-asgd/theta=kalman",
    "pc-asgd/theta=pv/criterion=hindsight",
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
