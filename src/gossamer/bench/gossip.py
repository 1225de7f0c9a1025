"""gossipy-dfl, a simulator of gossip learning with link delays, on the same model, data, graph and delay.

A round has one time step. In it every node sends a copy of its model to one random neighbour; the receiver averages it
with its own, `delay` rounds later, and takes one gradient step: N gradient steps a round, as the engine takes. Each
node holds one batch of examples. Nothing is evaluated.
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
    """Return the seconds that each of `count` rounds takes, once late messages arrive."""
    with _quiet():
        simulation = importlib.import_module("gossipy.simul")
        simulator = _simulator(task, inputs, targets, network, delay)
        clock = _clock(simulation)
        simulator.add_receiver(clock)
        simulator.init_nodes()
        skipped = delay + 2
        simulator.start(n_rounds=skipped + count)
        importlib.import_module("gossipy").CACHE.clear()  # models in flight at the end would stay there
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
    """Return the task's module as gossipy's kind of model."""
    base: Any = importlib.import_module("gossipy.model").TorchModel

    class Model(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = task.fresh_module(SEED).module

        def forward(self, x: Tensor) -> Tensor:
            return self.module(x)  # type: ignore[no-any-return]

        def init_weights(self) -> None:
            """All nodes begin alike, as the engine's agents do."""

    return Model()


class _Shards:
    """One batch a node, and no test examples: the two questions that a simulation asks of its data."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self._inputs, self._targets = inputs, targets

    def __getitem__(self, node: int) -> tuple[tuple[Tensor, Tensor], None]:
        return (self._inputs[node], self._targets[node]), None

    def has_test(self) -> bool:
        return False


def _clock(simulation: Any) -> Any:
    """Return a receiver of events that notes when each time step ended."""

    class Clock(simulation.SimulationEventReceiver):  # type: ignore[misc]
        def __init__(self) -> None:
            self.times: list[float] = []

        def update_timestep(self, t: int) -> None:
            self.times.append(time.perf_counter())

        def update_message(self, *_: Any) -> None:
            pass

        def update_evaluation(self, *_: Any) -> None:
            pass

        def update_end(self) -> None:
            pass

    return Clock()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep standard output and torch's generator as they are: gossipy sets up logging and draws bars."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with torch.random.fork_rng(devices=[]):
        simulation = _import_simulation()
        track = simulation.track
        simulation.track = lambda steps, **_: (step for step in steps)  # it is closed at the end, as a generator can be
        logging.getLogger("rich").setLevel(logging.WARNING)
        root.handlers[:] = handlers
        root.setLevel(level)
        try:
            yield
        finally:
            simulation.track = track


def _import_simulation() -> Any:
    """Import gossipy's simulator. It imports torchvision for data sets that are not used here: an empty one will do."""
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):
        sys.modules["torchvision"] = types.ModuleType("torchvision")
        try:
            return importlib.import_module("gossipy.simul")
        finally:
            del sys.modules["torchvision"]
    return importlib.import_module("gossipy.simul")
