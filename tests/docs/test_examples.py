"""The examples do what they say."""

import os
import re
import subprocess
import sys

import pytest

from flight import SOURCE
from pages import ROOT

LEARNT = 50  # per cent, of ten classes: how far agents get depends on how late a busy machine makes their messages
EXAMPLES = ROOT / "examples"


def run(*command: str, **environment: str) -> str:
    given = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", **environment}
    ended = subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=400)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def accuracies(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"agent \d+: ([\d.]+) % after 300 steps", text)]


@pytest.mark.timeout(600)
def test_the_loop_of_ones_own_runs_alone():
    (alone,) = accuracies(run(sys.executable, str(EXAMPLES / "own_loop.py")))
    assert alone > 80  # which depends on nothing


@pytest.mark.timeout(600)
def test_the_loop_of_ones_own_runs_as_four_agents(tmp_path):
    command = ["launch", "--network", "clusters:2,2", "--algorithm", "pc-asgd/theta=pv", "--logs", "all"]
    command += ["--lockstep"]  # 300 steps take less time than a busy machine may let a neighbour stand still
    out = run(sys.executable, "-m", "gossamer", *command, "--out", str(tmp_path), str(EXAMPLES / "own_loop.py"))
    assert len(accuracies(out)) == 4 and min(accuracies(out)) > LEARNT


@pytest.mark.timeout(600)
def test_the_papers_agents_run_as_processes_and_in_the_simulator(tmp_path):
    command = tmp_path / "gossamer"  # where this test's own Python is asked, whatever is installed
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gossamer "$@"\n')
    command.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    script = (EXAMPLES / "paper_digits.sh").read_text().replace("runs/", str(tmp_path))
    (tmp_path / "paper.sh").write_text(script)
    ended = subprocess.run(
        ["bash", str(tmp_path / "paper.sh")],
        env={**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", "PATH": path, "EPOCHS": "12"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert ended.returncode == 0, ended.stderr
    processes, simulator = (float(number) for number in re.findall(r"accuracy  ([\d.]+) %", ended.stdout))
    assert processes > LEARNT and simulator > LEARNT


@pytest.mark.timeout(600)
def test_slurm_starts_the_loop_by_its_variables(tmp_path):
    """As srun would: one process a task, told apart by SLURM_PROCID alone."""
    text = (EXAMPLES / "slurm.sbatch").read_text()
    exported = dict(re.findall(r'^export (GOSSAMER_\w+)="([^"$]*)"$', text, flags=re.MULTILINE))
    assert exported == {"GOSSAMER_NETWORK": "clusters:4,4,4,4", "GOSSAMER_ALGORITHM": "pc-asgd/theta=pv"}
    job = str(os.getpid())
    tasks = [
        subprocess.Popen(
            [sys.executable, str(EXAMPLES / "own_loop.py")],
            env={
                **os.environ,
                "PYTHONPATH": SOURCE,
                "OMP_NUM_THREADS": "1",
                "GOSSAMER_NETWORK": "ring:3",
                "GOSSAMER_ALGORITHM": exported["GOSSAMER_ALGORITHM"],
                "GOSSAMER_LOCKSTEP": "1",  # as above
                "SLURM_JOB_ID": job,
                "SLURM_STEP_ID": "0",
                "SLURM_PROCID": str(rank),
                "SLURM_NTASKS": "3",
                "SLURM_STEP_NODELIST": "localhost",
                "SLURMD_NODENAME": "localhost",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        ends = [task.communicate(timeout=400) for task in tasks]
    finally:
        for task in tasks:
            task.kill()
    assert all(task.returncode == 0 for task in tasks), ends
    assert [accuracies(out)[0] > LEARNT for out, _ in ends] == [True] * 3
