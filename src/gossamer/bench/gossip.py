"""gossipy-dfl, a simulator of gossip learning with link delays, with the same model, data, graph and delay.

A round is one time step. Every node sends a copy of its model to one random neighbour. `delay` rounds later the
receiver averages it with its own and takes one gradient step: N gradient steps per round, as in the engine. Each node
has one batch of examples. Nothing is evaluated.
"""

import contextlib
import importlib
import importlib.util
import logging
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

import torch

from gossamer.bench.workloads import LEARNING_RATE, SEED
from gossamer.network import Network
from gossamer.shapes import Tensor
from gossamer.tasks import Task


def installed() -> bool:
    """Say whether gossipy-dfl can be imported."""
    return importlib.util.find_spec("gossipy") is not None


def rounds(task: Task, inputs: Tensor, targets: Tensor, network: Network, delay: int, count: int) -> list[float]:
    """Return the seconds of each of `count` rounds, after the first late messages have arrived."""
    with _quiet():
        simulation = importlib.import_module("gossipy.simul")
        simulator = _simulator(task, inputs, targets, network, delay)
        clock = _clock(simulation)
        simulator.add_receiver(clock)
        simulator.init_nodes()
        skipped = delay + 2
        simulator.start(n_rounds=skipped + count)
        importlib.import_module("gossipy").CACHE.clear()  # it keeps models that are in flight at the end
    return [after - before for before, after in zip(clock.times[skipped - 1 :], clock.times[skipped:], strict=False)]


def _simulator(task: Task, inputs: Tensor, targets: Tensor, network: Network, delay: int) -> Any:
    core, node, simulation, handler = (
        importlib.import_module(f"gossipy.{name}") for name in ("core", "node", "simul", "model.handler")
    )
    importlib.import_module("gossipy").set_seed(SEED)
    peers = core.StaticP2PNetwork(network.num_agents, network.links.numpy())
    data = _Shards(inputs, targets)
    prototype = handler.TorchModelHandler(
        net=_model(task),
        optimizer=torch.optim.SGD,
        optimizer_params={"lr": LEARNING_RATE},
        criterion=task.loss,
        local_epochs=1,
        batch_size=inputs.shape[1],
        create_model_mode=core.CreateModelMode.MERGE_UPDATE,
    )
    nodes = node.GossipNode.generate(data_dispatcher=data, p2p_net=peers, model_proto=prototype, round_len=1, sync=True)
    return simulation.GossipSimulator(
        nodes=nodes,
        data_dispatcher=data,
        delta=1,
        protocol=core.AntiEntropyProtocol.PUSH,
        delay=core.ConstantDelay(delay),
    )


def _model(task: Task) -> Any:
    """Return the task's module as a model of gossipy."""
    base: Any = importlib.import_module("gossipy.model").TorchModel

    class Model(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = task.fresh_module(SEED).module

        def forward(self, x: Tensor) -> Tensor:
            return self.module(x)  # type: ignore[no-any-return]

        def init_weights(self) -> None:
            """Keep the weights: all nodes start equal, like the agents of the engine."""

    return Model()


class _Shards:
    """One batch per node and no test examples, with the two methods that a simulation needs."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self._inputs, self._targets = inputs, targets

    def __getitem__(self, node: int) -> tuple[tuple[Tensor, Tensor], None]:
        return (self._inputs[node], self._targets[node]), None

    def has_test(self) -> bool:
        return False


def _clock(simulation: Any) -> Any:
    """Return an event receiver that records the end of each time step."""

    class StepTimes(simulation.SimulationEventReceiver):  # type: ignore[misc]
        def __init__(self) -> None:
            self.times: list[float] = []

        def update_timestep(self, t: int) -> None:
            self.times.append(time.perf_counter())

        def update_message(self, *_: Any) -> None:
            pass

        update_evaluation = update_end = update_message

    return StepTimes()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave standard output, logging and torch's generator unchanged: gossipy sets up logging and draws bars."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with torch.random.fork_rng(devices=[]):
        simulation = _import_simulation()
        track = simulation.track
        simulation.track = lambda steps, **_: (step for step in steps)  # a generator, because gossipy closes it
        logging.getLogger("rich").setLevel(logging.WARNING)
        root.handlers[:] = handlers
        root.setLevel(level)
        try:
            yield
        finally:
            simulation.track = track


def _import_simulation() -> Any:
    """Import gossipy's simulator, which imports torchvision for data sets: here an empty module is enough."""
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):
        sys.modules["torchvision"] = types.ModuleType("torchvision")
        try:
            return importlib.import_module("gossipy.simul")
        finally:
            del sys.modules["torchvision"]
    return importlib.import_module("gossipy.simul")
