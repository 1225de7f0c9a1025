"""Real processes over shared memory and over ZeroMQ reproduce `gm.trajectory`, for every algorithm of the core."""

import os

import pytest
import torch

from engines import CORE, make, worlds_of_processes
from flight import SOURCE
from gossamer.runtime.environment import Run
from gossamer.runtime.launch.job import LaunchJob
from gossamer.runtime.launch.launcher import Launcher
from pages import SUPPORT

SCRIPT = SUPPORT / "lockstep_agent.py"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("transport", ["shared", "sockets"])
def test_processes_in_lock_step_reproduce_the_trajectory(tmp_path, transport, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([SOURCE, str(SCRIPT.parent)]))
    run = Run(agents=3, run=f"agree-{os.getpid()}-{transport}", transport=transport)
    job = LaunchJob(
        run=run, ranks=(0, 1, 2), script=SCRIPT, arguments=(str(tmp_path),), folder=tmp_path, max_restarts=0
    )
    report = Launcher(job).run()
    assert not report.failed, (tmp_path / "agent-0.log").read_text()[-2000:]
    paths = [torch.load(tmp_path / f"{rank}.pt") for rank in range(3)]
    cases = [(world, text) for world in worlds_of_processes() for text in CORE]
    for number, (world, text) in enumerate(cases):
        together = torch.stack([path[str(number)] for path in paths], dim=1)
        assert together.dtype == torch.float64
        torch.testing.assert_close(together, world.path(make(text)), rtol=1e-6, atol=1e-6, msg=text)
