"""The memory that a step of a rule needs besides what is kept, found by running the rule on four agents."""

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gossamer.algorithms import Algorithm
from gossamer.engine.simulation import Simulation
from gossamer.engine.trajectory import FunctionSource
from gossamer.errors import UserError
from gossamer.network import Network, network
from gossamer.shapes import Tensor
from gossamer.state.local import LocalOptimizer

AGENTS, SIZE, DELAY = "clusters:2,2", 256, 3
STEPS = 24  # at least; twice the period of a rule that sends now and then
MOST_STEPS = 200
GUESS = 5.0  # vectors, PC-ASGD's


@dataclass(frozen=True)
class StepMemory:
    """Bytes for each number of the state.

    Attributes:
        working: the most that a step makes before it ends, but for messages, which histories keep.
        shared: what the rule keeps between steps that histories keep too.
        read_back: what the histories give back in another type than they keep, in one step.
        renewed: the share of the steps at which a part of the messages is a new tensor.
    """

    working: float
    shared: float
    read_back: float = 0.0
    renewed: Mapping[str, float] = field(default_factory=dict)


class _Live(TorchDispatchMode):
    """Counts the bytes of the tensors that are made within the context and still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, int] = {}  # bytes by storage
        self.peak = self.read_back = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.made:
                    self.made[storage._cdata] = storage.nbytes()
                    weakref.finalize(storage, self.made.pop, storage._cdata, None)
        if func is torch.ops.aten._to_copy.default and args[0].dtype == torch.bfloat16:
            self.read_back += result.nbytes
        self.peak = max(self.peak, sum(self.made.values()))
        return result


def step_memory(
    algorithm: Algorithm, of: Network, dtype: torch.dtype, *, plain: bool, history: str = "state"
) -> StepMemory:
    """Run the rule on four agents, whose late messages have one age, and return what its dearest step needs.

    A rule that was made for one network or one model may fail on the small ones; then return a guess.
    """
    try:
        return _measured(algorithm, of, dtype, plain=plain, history=history)
    except (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, UserError, ValueError):
        return StepMemory(GUESS * dtype.itemsize, 0.0)


def _measured(algorithm: Algorithm, of: Network, dtype: torch.dtype, *, plain: bool, history: str) -> StepMemory:
    late = algorithm.hears_late and not algorithm.waits and (of.delay.largest > of.reliable_delay or of.loss > 0)
    net = network(AGENTS, DELAY if late else 0)
    source = FunctionSource(lambda x, t: x, lambda x, t: x[:, 0])
    start = torch.ones(net.num_agents, SIZE, dtype=dtype)
    local = LocalOptimizer(momentum=0.0 if plain else 0.9)
    run = Simulation(algorithm, net, source, start, lr=lambda t: 1e-3, local=local, history=history)
    rings = run.mailbox.rings
    working = shared = read_back = 0.0
    new = dict.fromkeys(rings, 0)
    steps = min(MOST_STEPS, max(STEPS, 2 * algorithm.period + DELAY + 1))
    for t in range(steps):
        with _Live() as live:
            run.step()
        held = {tensor.untyped_storage()._cdata for ring in rings.values() for tensor in ring.held()}
        sent = sum(size for storage, size in live.made.items() if storage in held)
        if t > 2 * DELAY:  # before, the sums of past states are rebuilt, block by block
            working, read_back = max(working, live.peak - sent), max(read_back, live.read_back)
        shared = sum(kept.nbytes for kept in run.state.values() if kept.untyped_storage()._cdata in held)
        for name, ring in rings.items():
            new[name] += t > 0 and not ring.repeats(t)
    renewed = {name: count / (steps - 1) for name, count in new.items()}
    return StepMemory(working / start.numel(), shared / start.numel(), read_back / start.numel(), renewed)
