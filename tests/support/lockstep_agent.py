"""One agent of test_processes_agree.py: its path under every rule, in lock step, written to a file."""

import sys
from pathlib import Path

import torch

import gossamer as gm
from engines import CORE, make, worlds_of_processes
from fleet import path_of
from gossamer.runtime.environment import read_environment

folder = Path(sys.argv[1])
run = read_environment()
paths = {}
for number, (world, text) in enumerate((world, text) for world in worlds_of_processes() for text in CORE):
    settings = {
        "run": f"{run.run}-{number}",
        "lockstep": True,
        "max_age": 200,
        "seed": world.seed,
        "deadline": 60.0,
        "meet": 60.0,
    }
    with gm.Agent(type(run)(**{**vars(run), **settings}), world.network) as agent:
        smooth, i = world.smooth, agent.rank
        paths[f"{number}"] = path_of(
            agent,
            make(text),
            torch.from_numpy(smooth.x0[i]),
            lambda x, t, smooth=smooth, i=i: smooth.one(i, x, t),
            lambda x, t, smooth=smooth, i=i: smooth.one_loss(x, i, t),
            world.lr,
            world.num_steps,
        )
torch.save(paths, folder / f"{run.rank}.pt")
