"""Agents that kill themselves or stand still because the faults say so."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from gossamer.runtime.transport.fault_spec import parse_faults
from gossamer.runtime.transport.faults import FaultyTransport
from pages import SUPPORT
from wires import AGENTS, Agent, Wire


@pytest.fixture
def kills(monkeypatch):
    """Signals that would have been sent."""
    sent = []
    monkeypatch.setattr(os, "kill", lambda process, number: sent.append((process, number)))
    return sent


@pytest.mark.parametrize("steps", [range(98, 103), range(100, 103), (98, 99, 101, 102)])
def test_an_agent_kills_itself_once_when_it_reaches_the_iteration(kills, steps):
    agent = Agent("kill:1@100")
    for step in steps:
        agent.faulty.tick(step)
        assert kills == ([(os.getpid(), signal.SIGKILL)] if step >= 100 else [])


@pytest.mark.parametrize(("rank", "steps"), [(2, range(98, 103)), (1, range(90, 100)), (1, range(101, 110))])
def test_others_live_on_and_so_does_who_begins_behind_the_iteration(kills, rank, steps):
    agent = Agent("kill:1@100", rank=rank)
    for step in steps:
        agent.faulty.tick(step)
    assert kills == []


@pytest.mark.parametrize(("restarts", "dies"), [(0, True), (1, False)])
def test_an_agent_that_was_started_again_is_not_killed_again(kills, restarts, dies):
    FaultyTransport(Wire(), parse_faults("kill:1@5", AGENTS), 1, 0, restarts=restarts).tick(5)
    assert bool(kills) == dies


def in_a_process(text, steps):
    """Start a process that ticks behind these faults, prints each iteration and the time, and ends with its input."""
    script = f"""
        import sys, time
        sys.path.insert(0, {str(SUPPORT)!r})
        from wires import AGENTS, FaultyTransport, Wire, parse_faults
        faulty = FaultyTransport(Wire(), parse_faults({text!r}, AGENTS), 1, 0, restarts=0)
        for step in range({steps}):
            faulty.tick(step)
            print(step, time.monotonic(), flush=True)
        sys.stdin.read()
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], **pipes)


def test_a_process_is_killed_for_good():
    process = in_a_process("kill:1@2", 5)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert [line.split()[0] for line in printed.splitlines()] == ["0", "1"]


def test_a_process_stands_still_and_goes_on():
    process = in_a_process("stop:1@2,300ms", 4)
    # The first thing that happens to it. Who looks too late to see it stopped is told that it was continued instead.
    _, status = os.waitpid(process.pid, os.WUNTRACED | os.WCONTINUED)
    stopped = os.WIFSTOPPED(status) or os.WIFCONTINUED(status)
    printed, _ = process.communicate(timeout=120)
    assert stopped and process.returncode == 0
    times = [float(line.split()[1]) for line in printed.splitlines()]
    assert len(times) == 4 and 0.3 <= times[2] - times[1] < 30
