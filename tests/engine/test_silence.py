"""Who is silent is left out: a dead link costs nothing after a while, an old message is dropped."""

import math

import pytest
import torch

import gossamer as gm


def pull(x, agents, iterations):
    """The gradient of a constant slope: all agents move by -lr a step."""
    return torch.ones_like(x)


def paces(deadline, seconds=40.0):
    """Steps of 0.1 along the slope that each agent makes by the end; agent 3 goes down for good at 10 s."""
    bed = gm.testbed(agents=4, latency=0.5, deadline=deadline, max_age=1000, schedule=[(10.0, 3, False)])
    line = gm.timeline("d-asgd", "complete:4", pull, torch.zeros(1), lr=0.1, testbed=bed, seconds=seconds)
    half = len(line.paths[0]) // 2
    return [float((path[half] - path[-1]) / (0.1 * (len(path) - 1 - half))) for path in line.paths[:3]]


def test_a_dead_neighbour_that_is_kept_holds_the_others_back():
    assert max(paces(1000.0)) < 0.3  # it is averaged with for ever


@pytest.mark.parametrize("deadline", [5.0, "auto"])
def test_a_dead_neighbour_is_left_out_after_its_deadline(deadline):
    # One step late, all weights 1/4: the pace of D-ASGD is 1 / (1 + 1 x 3/4), without the fourth 1 / (1 + 2/3).
    seconds = 40.0 if deadline == 5.0 else 80.0
    assert paces(deadline, seconds) == pytest.approx([1 / (1 + 2 / 3)] * 3, rel=0.05)


def test_a_message_older_than_max_age_is_dropped():
    bed = gm.testbed(agents=2, latency=0.5, deadline=1000.0, max_age=6, schedule=[(4.5, 1, False)])
    line = gm.timeline("d-asgd", "complete:2", pull, torch.zeros(1), lr=0.1, testbed=bed, seconds=20.0)
    ages = line.ages[0][:, 0].tolist()
    # Agent 1 ends iterations at 1 to 4 s. The last one is one step old at 5 s, and 6 at 10 s.
    assert ages == [-1, 1, 1, 1, 1, 2, 3, 4, 5, 6, *[-1] * 10]
    assert math.isclose(float(line.paths[0][-2] - line.paths[0][-1]), 0.1, rel_tol=1e-5)
