"""Cases of time: the engine's complete iteration beside a loop, torch.func.vmap, one large model and gossipy."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gossamer.bench import gossip
from gossamer.bench.cases import BenchRow, Measured, Request, case
from gossamer.bench.measure import Contestant, Race, Timing, copy_rate
from gossamer.bench.rival_steps import NaiveLoop, OneModel, Vmapped
from gossamer.bench.workloads import Workload, contestant, generous
from gossamer.engine.training import Training
from gossamer.nn.models.preresnet import NormReLUConv2d
from gossamer.shapes import Tensor
from gossamer.tasks import Task

INPUT_PASSES = 8
OUTPUT_PASSES = 3


def elements_moved(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Return how many numbers a step moves for one image of this shape, summed over all units of the module.

    The time to move them at the rate of a plain copy is a lower bound; stem, shortcuts and head are left out. The
    passes are those of the fused unit (nn/kernels/unit.py). Over its input: forward 2 (statistics, convolution),
    backward 6 (x and dz to pass the ReLU; dz, x and dx to pass the norm; x for the weights). Over its output: forward 1
    (y), backward 2 (dy to carry back; dy for the weights). A residual adds one over the output forward and, as the
    gradient of the other path, one over the input backward.
    """
    total = 0

    def count(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        nonlocal total
        residual = len(inputs) > 1 and inputs[1] is not None
        total += (INPUT_PASSES + residual) * inputs[0].numel() + (OUTPUT_PASSES + residual) * output.numel()

    hooks = [part.register_forward_hook(count) for part in module.modules() if isinstance(part, NormReLUConv2d)]
    module.eval()  # one image has no statistics of its own
    with torch.no_grad():
        module(torch.zeros(1, *shape))
    for hook in hooks:
        hook.remove()
    return total


OURS = "gossamer, PC-ASGD"
OURS_PLAIN = "gossamer, D-ASGD"
NAIVE = "loop over modules"
VMAP = "torch.func.vmap"
ONE = "ONE large-batch model"
GOSSIPY = "gossipy-dfl"
RIVAL_SHARE = 8  # rivals are slower, so their blocks are shorter by this factor


@case("preresnet", "PreResNet, 8 agents")
def preresnet(plan: Request) -> Measured:
    """Time the paper's largest net; on a CPU a smaller relative of it."""
    full = Workload("preresnet:110", "paper-1", 128, 20)
    work = _fitted(plan, full, "preresnet:20", "preresnet:8")
    measured = _against_rivals(plan, work, (NAIVE, VMAP, ONE), rounds=5)
    _add_floor(plan, work, measured)
    return measured


@case("densenet", "DenseNet-BC, 8 agents")
def densenet(plan: Request) -> Measured:
    """Time the other deep net."""
    full = Workload("densenet:100", "paper-1", 128, 20)
    work = _fitted(plan, full, "densenet:40", "densenet:10")
    return _against_rivals(plan, work, (NAIVE, ONE), rounds=5)


@case("mlp", "Many agents with a small MLP", usual_on=("cpu",))
def mlp(plan: Request) -> Measured:
    """Time many small models, which simulators of gossip learning are made for."""
    work = Workload("mlp:128,128", "regular:100,k=4,seed=1", 64, 3, (1, 28, 28), 20_000)
    if plan.quick:
        work = Workload("mlp:8,8", "regular:6,k=3,seed=1", 4, 3, (1, 28, 28), 200)
    return _against_rivals(plan, work, (NAIVE, VMAP), rounds=5, gossipy=True)


def _fitted(plan: Request, full: Workload, small: str, tiny: str) -> Workload:
    """Return the workload that the device can carry: a deep net takes a minute an iteration on a few cores."""
    if plan.quick:
        return Workload(tiny, full.network, 2, 2, (3, 8, 8), 200)
    return full if plan.cuda else Workload(small, full.network, 16, full.delay)


def _against_rivals(
    plan: Request, work: Workload, rivals: tuple[str, ...], *, rounds: int, gossipy: bool = False
) -> Measured:
    plan.say("building")
    task = work.task()
    training = work.training(plan, task)
    # 64 steps: batches are drawn for that many at once, and each block is to pay for it.
    steps = 64 if plan.cuda or work.model.startswith("mlp") else 2
    rival_steps = plan.count(max(1, steps // RIVAL_SHARE))
    race = plan.race(rounds)
    ours = contestant(training, OURS, plan.count(steps), work.delay + 2)
    others = _rivals(plan, work, task, rivals, rival_steps)
    if gossipy:
        # Its nodes send parameters alone, as D-ASGD does.
        plain = work.training(plan, task, "d-asgd")
        others.insert(0, contestant(plain, OURS_PLAIN, plan.count(steps), work.delay + 2))
    timings = race.run([ours, *others])
    labels = [OURS, *(one.label for one in others)]
    if gossipy:
        labels.append(GOSSIPY)
        if not race.interrupted:
            _time_gossipy(plan, work, training, race, timings, rival_steps)
    rows = compared(labels, timings, race.notes)
    return Measured(work.describe(plan, training), rows, interrupted=race.interrupted)


def _rivals(plan: Request, work: Workload, task: Task, names: tuple[str, ...], steps: int) -> list[Contestant]:
    """Make the rivals on the engine's own first batch."""
    inputs, targets = work.batch_of(plan, task)
    dtype = torch.bfloat16 if plan.precision == "bf16" else torch.float32
    makers: dict[str, Callable[[], NaiveLoop | Vmapped | OneModel]] = {
        NAIVE: lambda: NaiveLoop(task, inputs, targets),
        VMAP: lambda: Vmapped(task, inputs, targets),
        ONE: lambda: OneModel(task, inputs, targets, dtype),
    }
    return [Contestant(name, makers[name]().step, 3, steps, lambda: generous(plan), may_fail=True) for name in names]


def _time_gossipy(
    plan: Request, work: Workload, training: Training, race: Race, timings: dict[str, Timing], count: int
) -> None:
    """Time gossipy after the others, on the CPU: its simulator cannot be stopped and taken up again."""
    if not gossip.installed():
        race.notes[GOSSIPY] = "not installed"
        return
    plan.say(GOSSIPY)
    inputs, targets = (tensor.cpu() for tensor in work.batch_of(plan, training.task))
    wanted = race.rounds * count
    with generous(plan):
        seconds = gossip.rounds(training.task, inputs, targets, training.network, work.delay, wanted)
    race.interrupted = len(seconds) < wanted  # gossipy keeps Ctrl+C to itself and returns what it has
    blocks = [1000 * sum(seconds[i : i + count]) / count for i in range(0, len(seconds) - count + 1, count)]
    if blocks:
        timings[GOSSIPY] = Timing.of(blocks)


def compared(labels: list[str], timings: dict[str, Timing], notes: dict[str, str]) -> list[BenchRow]:
    """Return a row for each label; `faster` is how many times as long it takes as the first one."""
    ours = timings.get(labels[0])
    rows: list[BenchRow] = []
    for label in labels:
        row: BenchRow = {"label": label}
        if timing := timings.get(label):
            row |= {"ms": timing.ms, "low": timing.low, "high": timing.high}
            row["faster"] = None if ours is None else timing.ms / ours.ms
        else:
            row["note"] = notes.get(label, "not measured")
        rows.append(row)
    return rows


def _add_floor(plan: Request, work: Workload, measured: Measured) -> None:
    """Compare with the bytes that must be moved."""
    if measured.interrupted:
        return
    plan.say("memory traffic")
    size = 2 if plan.precision == "bf16" else 4
    with torch.random.fork_rng(devices=[]):
        moved = elements_moved(work.module(), work.shape) * work.num_agents * work.batch * size
    rate = copy_rate(plan.device, 2**30 if plan.cuda else 2**26)
    floor = 1000 * moved / rate
    measured.facts |= {"bytes_moved": moved, "copy_rate": rate, "floor_ms": floor}
    if "ms" in measured.rows[0]:
        measured.facts["over_floor"] = measured.rows[0]["ms"] / floor
