"""Agents under torchrun: one each, so that one death starts one agent again and no other."""

import signal

from gossamer.runtime.environment import read_environment
from gossamer.runtime.launch.job import torchrun_command
from gossamer.runtime.launch.launcher import Launcher
from launching import Events, alive, in_a_shell, lives, make_job, pids, write_script
from waiting import until

ONE_IS_KILLED = """
if rank == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os.kill(os.getpid(), signal.SIGKILL)
while rank == "0" and count("lives", 1) < 2:  # lives through the death of the other
    time.sleep(0.01)
"""


def test_a_killed_agent_is_started_again_by_torchrun_and_the_other_goes_on(tmp_path):
    watcher = Events()
    job = make_job(tmp_path, ONE_IS_KILLED, 2, arguments=("--epochs", "3"))
    report = Launcher(job, watcher, command=torchrun_command, restarts=0).run()
    assert [o.exit for o in report.outcomes] == [0, 0] and watcher.events == []
    (steady,), (first, second) = lives(tmp_path, 0), lives(tmp_path, 1)
    assert steady["argv"][1:] == ["--epochs", "3"] and first["pid"] != second["pid"]
    told = [read_environment(life["environ"]) for life in (steady, first, second)]
    assert [(run.rank, run.agents, run.restarts, run.book) for run in told] == [
        (0, 2, 0, job.run.book),
        (1, 2, 0, job.run.book),
        (1, 2, 1, job.run.book),
    ]


def test_workers_do_not_outlive_a_launcher_that_is_killed(folder):
    write_script(folder, "wait_for_ever()")
    process = in_a_shell(folder, "--agents", 2, "--torchrun", "--book", "localhost:9", "--out", "out", "script.py")
    try:
        until(lambda: all((folder / f"out/ready-{rank}.jsonl").exists() for rank in range(2)), 120)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    workers = pids(folder / "out", 2)
    assert len(workers) == 2
    until(lambda: not any(alive(pid) for pid in workers))
