"""Random settings of test_stability.py, predicted and then simulated; as a program it prints what came of some of them.

    python predictions.py FIRST COUNT

It runs as a program because shape checks, which every test has, would make thousands of simulated steps slow.
"""

import json
import math
import sys
import warnings

import numpy as np
import torch

import gossamer as gm
from gossamer.network import Network, PerLink
from gossamer.theory.linear import linearise
from gossamer.theory.reduced_past import spectral_radius

RULES = [
    gm.algorithm("sync"),
    gm.algorithm("d-asgd"),
    gm.algorithm("p-asgd"),
    gm.algorithm("c-asgd"),
    gm.algorithm("pc-asgd", theta=0.3),
    gm.algorithm("pc-asgd", theta=0.7),
    gm.algorithm("dm-asgd"),
]


def random_network(seed):
    """A connected random graph of 3 to 7 agents, random clusters, and a delay of its own on each late link."""
    chance = np.random.default_rng(seed)
    agents = int(chance.integers(3, 8))
    links = torch.zeros(agents, agents, dtype=torch.bool)
    for agent in range(1, agents):  # a random tree, so that it is connected
        links[agent, int(chance.integers(agent))] = True
    links |= torch.from_numpy(chance.random((agents, agents)) < 0.4).triu(1)
    links = links | links.T
    links.fill_diagonal_(False)
    cut = int(chance.integers(1, agents))
    clusters = (tuple(range(cut)), tuple(range(cut, agents)))
    delays = torch.from_numpy(chance.integers(1, 9, (agents, agents)))
    inside = torch.zeros(agents, dtype=torch.int64)
    inside[cut:] = 1
    delays[inside[:, None] == inside[None, :]] = 0
    return Network(links, clusters, PerLink(delays * links))


def amplitude_grows(rule, network, lr, h, steps):
    """Run the simulator on h x^2 / 2 from a random start; say whether the states are larger at the end than midway."""
    start = torch.randn(network.num_agents, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    path = gm.trajectory(rule, network, lambda x, _: h * x, 1e-6 * start, lr, steps)
    size = path.flatten(1).norm(dim=1)
    if not bool(size.isfinite().all()):
        return True
    window = steps // 4  # an oscillation is judged by its crests
    middle = steps // 2
    return float(size[-window:].max()) > float(size[middle : middle + window].max())


def random_case(number):
    """Any rule and network; the rate is a random multiple of the limit, since nobody learns from a rate far off it."""
    chance = np.random.default_rng([7, number])
    network, rule = random_network(int(chance.integers(10_000))), RULES[int(chance.integers(len(RULES)))]
    h = float(np.exp(chance.uniform(np.log(0.1), np.log(10))))
    lr = float(np.exp(chance.uniform(np.log(0.02), np.log(4)))) / h
    return rule, network, lr, h


def right(number):
    """Return whether the prediction of a random case came true; None within 2 % of the limit."""
    rule, network, lr, h = random_case(number)

    def radius(rate):
        return spectral_radius(linearise(rule, network, rate, h, check=False))

    stable = radius(lr) < 1
    if any((radius(rate) < 1) != stable for rate in (0.98 * lr, 1.02 * lr)):
        return None
    steps = int(min(1500, max(120, 10 / abs(math.log(radius(lr))))))
    return stable, amplitude_grows(rule, network, lr, h, steps) != stable


if __name__ == "__main__":
    warnings.simplefilter("ignore", gm.StabilityWarning)
    first, count = map(int, sys.argv[1:])
    print(json.dumps([right(number) for number in range(first, first + count)]))
