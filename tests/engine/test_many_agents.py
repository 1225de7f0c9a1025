"""A sparse network of many agents needs memory by its links: nothing that a run makes has an entry for every pair."""

import warnings

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import gossamer as gm
from gossamer.algorithms import algorithm_names
from gossamer.algorithms.registry import algorithm_class
from gossamer.algorithms.rivals.server import ServerBased
from gossamer.engine import make_training
from gossamer.engine.simulation import Simulation
from gossamer.engine.trajectory import FunctionSource
from gossamer.run.settings import make_settings

N = 1200
# With a server every agent is linked with one; a graph of links between all is not sparse.
SERVED = {name for name in algorithm_names() if issubclass(algorithm_class(name), ServerBased)}
VARIANTS = ("pc-asgd/theta=kalman", "ad-psgd/exchange=one-sided", "d-asgd/gradient_at=mixed")


class Largest(TorchDispatchMode):
    """The most entries of any tensor that is made within the context, views and copies alike."""

    def __init__(self):
        super().__init__()
        self.entries, self.made_by = 0, None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.numel() > self.entries:
                self.entries, self.made_by = tensor.numel(), func
        return result


@pytest.mark.parametrize("text", [name for name in algorithm_names() if name not in SERVED] + [*VARIANTS])
def test_no_rule_makes_a_tensor_for_every_pair(text):
    net = gm.network(f"regular:{N},k=4", "uniform:0,3", loss=0.1)
    name, *options = text.split("/")
    rule = gm.algorithm(name, **dict(option.split("=") for option in options))
    with warnings.catch_warnings(), Largest() as largest:
        warnings.simplefilter("ignore", gm.StabilityWarning)
        rule.check(net)
        source = FunctionSource(lambda x, t: x, lambda x, t: x.square().sum(dim=1))
        run = Simulation(rule, net, source, torch.ones(N, 2), lr=lambda t: 0.1)
        for _ in range(9):
            run.step()
        run.load_state_dict(run.state_dict())
    assert bool(torch.isfinite(run.x).all())
    assert largest.entries < N * N / 10, largest.made_by


def test_neither_a_network_nor_a_training_makes_a_tensor_for_every_pair(tmp_path):
    draws = torch.Generator().manual_seed(1)
    x, y = torch.randn(4 * N, 3, generator=draws), torch.randint(0, 2, (4 * N,), generator=draws)
    task = gm.Task("toy", lambda: torch.nn.Linear(3, 2), gm.Examples(x, y), gm.Examples(x[:4], y[:4]))
    with Largest() as largest:
        for spec in (f"ring:{N}", f"exponential:{N}", "torus:30x40"):
            gm.network(spec, "geometric:0.3", clusters=str(N), mixing="uniform")
        values = {"network": f"regular:{N},k=4", "delay": "gilbert:0.1,0.3,4", "batch": 1, "epochs": 2}
        run = make_training(make_settings({**values, "execution": "stacked", "algorithm": "d-asgd"}), task=task)
        for _ in range(2):
            run.tally.add(run.simulation.step())
        run.state_dict()
    assert largest.entries < N * N / 4, largest.made_by
