"""Estimates the memory of a run before it starts, and refuses a run that does not fit."""

import math
import os
from dataclasses import dataclass

import torch

from gossamer.algorithms import Algorithm, Past, Place
from gossamer.algorithms.message_parts import part_bytes
from gossamer.data import BLOCK
from gossamer.engine.execution.base import Setup
from gossamer.engine.mailbox import planned_rings
from gossamer.engine.step_memory import StepMemory, step_memory
from gossamer.errors import UserError
from gossamer.fused import is_fused
from gossamer.network import Fixed, Network
from gossamer.shapes import Tensor

ON_THE_WAY = 1.25  # factor on what autograd keeps for the backward pass, for the temporary tensors of layers
GRADIENT_VECTORS = 1.5  # of [N, d] in a backward pass: the gradient, and temporary tensors of a layer
OTHER_VECTORS = 0.5  # measured on a CPU, for models of 2e5 to 1e6 parameters
HOLES = 1.5  # the most that kept memory took, over what is in use: 1.39
MODULES = 3  # copies of one agent's model
CODE = 160_000_000  # measured: numba, LLVM and the compiled loop, where rules are fused


@dataclass(frozen=True)
class Memory:
    """Bytes by purpose. `histories` may be in host memory instead of on the device."""

    states: int
    histories: int
    activations: int
    data: int
    batches: int = 0
    code: int = 0
    histories_on_host: bool = False
    histories_in_bf16: bool = False

    @property
    def on_device(self) -> int:
        """The bytes that must fit on the device."""
        histories = 0 if self.histories_on_host else self.histories
        return self.states + self.activations + self.data + self.batches + self.code + histories

    def __str__(self) -> str:
        parts = {"states": self.states, "histories": self.histories, "activations": self.activations}
        parts |= {"data": self.data, "batches": self.batches}
        parts |= {"code": self.code} if self.code else {}
        listed = ", ".join(f"{name} {in_words(value)}" for name, value in parts.items())
        place = " (histories on the host)" if self.histories_on_host else ""
        return f"about {in_words(self.on_device)}: {listed}{place}"


def in_words(count: int | float) -> str:
    """Return a number of bytes as text with a unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def estimate(setup: Setup, algorithm: Algorithm, network: Network, *, batch: int, plain: bool, history: str) -> Memory:
    """Estimate the memory of a run: histories exactly, activations from one small forward pass."""
    step = step_memory(algorithm, network, setup.dtype, plain=plain, history=history)
    numbers = setup.num_agents * setup.module.size
    examples = (setup.task.train, setup.task.test)
    return Memory(
        states=_state_bytes(setup, algorithm, network, step, plain=plain, history=history),
        histories=_history_bytes(setup, algorithm, network, step, plain=plain, history=history),
        activations=setup.num_agents * batch * _activation_bytes(setup),
        batches=setup.num_agents * batch * _example_bytes(setup),
        data=sum(part.x.numel() * part.x.element_size() + part.y.numel() * 8 for part in examples),
        code=CODE if is_fused(numbers, setup.dtype, setup.device) else 0,
        histories_on_host=history == "host" and setup.device != "cpu",
        histories_in_bf16=history == "bf16",
    )


def _history_bytes(
    setup: Setup, algorithm: Algorithm, network: Network, step: StepMemory, *, plain: bool, history: str
) -> int:
    """Return the bytes of all histories. A tensor that is sent again, and not copied, is kept once."""
    names, depth = planned_rings(algorithm, network, plain=plain)
    exact, count = algorithm.totals | algorithm.numbers, 0
    for name in names:
        copied = setup.device != "cpu" or (history != "state" and not (history == "bf16" and name in exact))
        renewed = 1.0 if copied else step.renewed.get(name, 1.0)
        slots = min(depth, math.ceil(depth * renewed) + 1)
        itemsize = 2 if history == "bf16" and name not in algorithm.numbers else setup.dtype.itemsize
        count += slots * part_bytes(algorithm, name, setup.module.size, itemsize)
    return count * setup.num_agents


def _state_bytes(
    setup: Setup, algorithm: Algorithm, network: Network, step: StepMemory, *, plain: bool, history: str
) -> int:
    """Return the bytes of a step at its dearest moment, but for the histories: in the backward pass or in the rule."""
    names, _ = planned_rings(algorithm, network, plain=plain)
    numbers, agents = setup.num_agents * setup.module.size, setup.num_agents
    vector = numbers * setup.dtype.itemsize
    kept = 1 + (agents + 1 + MODULES) / agents  # the models that train, those that are evaluated, and the modules
    kept += OTHER_VECTORS + (0 if plain else 1)
    own = _rule_bytes(algorithm, network, setup) - numbers * step.shared
    window = bool(names) and algorithm.past is Past.WINDOW
    in_rule = numbers * step.working
    if is_fused(numbers, setup.dtype, setup.device):  # g, the next x, and what is kept: no temporary tensors
        in_rule = min(in_rule, (2 + window) * vector + own) + numbers * step.read_back
    if window:
        kept += 1
        in_rule += (_ages_at_once(network) - 1) * vector  # a sum for each age
    in_rule += 0 if "x" in names and history == "state" else vector  # else x is not kept as a message too
    return int(kept * vector + own + max((1 + GRADIENT_VECTORS) * vector, in_rule))


def _ages_at_once(network: Network) -> int:
    """Return how many ages the late messages of one step can have."""
    if isinstance(network.delay, Fixed) and not network.loss and network.schedule is None:
        return 1
    return max(1, min(network.delay.largest, int(network.late_values.sum())))


def _rule_bytes(algorithm: Algorithm, network: Network, setup: Setup) -> int:
    """Return the bytes of the rule's own state: those for a model of one parameter, times the number of parameters."""
    place = Place(network, torch.arange(setup.num_agents), torch.ones(setup.num_agents))
    of_sizes = [
        sum(
            kept.nbytes
            for kept in algorithm.start(torch.zeros(setup.num_agents, size, dtype=setup.dtype), place).values()
        )
        for size in (0, 1)
    ]
    return of_sizes[0] + (of_sizes[1] - of_sizes[0]) * setup.module.size


def _example_bytes(setup: Setup) -> int:
    """Return the bytes of one example: raw, prepared, and its indices in a block of batches."""
    raw = setup.task.train.x[0]
    return raw.numel() * (raw.element_size() + setup.working_dtype.itemsize) + BLOCK * 8


def _activation_bytes(setup: Setup) -> int:
    """Return the bytes that autograd keeps per example, measured in a forward pass of one agent on two examples."""
    kept: dict[int, int] = {}
    task = setup.task
    module = task.fresh_module(0).module.to(setup.dtype)
    of_module = {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), *module.buffers())}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in of_module:  # a saved tensor may be a view of a weight, such as its transpose
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    inputs = task.inputs(task.train.x[:2].clone(), setup.dtype)  # a view would count the storage of the whole data set
    with torch.random.fork_rng(devices=[]), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        module(inputs)
    ratio = setup.working_dtype.itemsize / setup.dtype.itemsize
    return int(ON_THE_WAY * sum(kept.values()) / 2 * ratio)


def check_fits(memory: Memory, device: str) -> None:
    """Refuse a run that does not fit, and name the option that makes it fit."""
    free = free_bytes(device)
    if free is None or memory.on_device <= free:
        return
    missing = memory.on_device - free
    movable = 0 if memory.histories_on_host else memory.histories
    if not memory.histories_in_bf16 and movable // 2 >= missing:
        remedy = "use --history bf16"
    elif device != "cpu" and movable >= missing:
        remedy = "use --history host"
    elif memory.activations // 2 >= missing:
        remedy = "use half the --batch or --precision bf16"
    elif memory.activations + memory.batches >= missing:
        remedy = "use a smaller --batch"
    else:
        remedy = "use fewer agents, a smaller --delay or a smaller --model"
    raise UserError(f"this run needs {memory}, but {device} has {in_words(free)} free; {remedy}")


def has_plenty(memory: Memory, device: str) -> bool:
    """Whether freed memory may be kept for reuse, which takes up to HOLES times as much."""
    free = free_bytes(device)
    return free is None or HOLES * memory.on_device <= free


def free_bytes(device: str) -> int | None:
    """Return the free memory of a device; None if unknown."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123 - not a user's path
            fields = dict(line.split(":") for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None


def peak_bytes(device: str) -> int | None:
    """Return the peak GPU memory of this process so far; None on a CPU, where other processes share the count."""
    return torch.cuda.max_memory_allocated(device) if torch.device(device).type == "cuda" else None
