"""Cases of speed: the engine's complete iteration against a loop, torch.func.vmap, one large model and gossipy."""

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
    """Return how many numbers a step moves per image of this shape, summed over all units of the module.

    The time to copy that many is a lower bound of the step; stem, shortcuts and head do not count. The passes are those
    of the fused unit (nn/kernels/preactivation_unit.py). Over its input: forward 2 (statistics, convolution),
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
    module.eval()  # one image has no batch statistics
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
RIVAL_SHARE = 8  # blocks of rivals, which are slower, are shorter by this factor


@case("preresnet", "PreResNet, 8 agents")
def preresnet(request: Request) -> Measured:
    """Time the paper's largest net; on a CPU a smaller one of its kind."""
    full = Workload("preresnet:110", "paper-1", 128, 20)
    work = _fitted(request, full, "preresnet:20", "preresnet:8")
    measured = _against_rivals(request, work, (NAIVE, VMAP, ONE), rounds=5)
    _add_floor(request, work, measured)
    return measured


@case("densenet", "DenseNet-BC, 8 agents")
def densenet(request: Request) -> Measured:
    """Time the other deep net."""
    full = Workload("densenet:100", "paper-1", 128, 20)
    work = _fitted(request, full, "densenet:40", "densenet:10")
    return _against_rivals(request, work, (NAIVE, ONE), rounds=5)


@case("small-images", "PreResNet-8 on 16 x 16 images, 8 agents", usual_on=())
def small_images(request: Request) -> Measured:
    """Time a net that a CPU can train."""
    work = Workload("preresnet:8", "paper-1", 16, 20, (3, 16, 16), 20_000)
    if request.quick:
        work = Workload("preresnet:8", "paper-1", 2, 2, (3, 8, 8), 200)
    return _against_rivals(request, work, (NAIVE, VMAP, ONE), rounds=5)


@case("transformer", "A transformer of bytes, 8 agents", usual_on=())
def transformer(request: Request) -> Measured:
    """Time a small language model on random bytes."""
    work = Workload("transformer:layers=2,width=64,heads=4", "paper-1", 8, 20, (64,), 5000)
    if request.quick:
        work = Workload("transformer:layers=1,width=8,heads=2", "paper-1", 2, 2, (6,), 200)
    return _against_rivals(request, work, (NAIVE, VMAP), rounds=5)


@case("mlp", "Many agents with a small MLP", usual_on=("cpu",))
def mlp(request: Request) -> Measured:
    """Time many small models, the usual workload of simulators of gossip learning."""
    work = Workload("mlp:128,128", "regular:100,k=4,seed=1", 64, 3, (1, 28, 28), 20_000)
    if request.quick:
        work = Workload("mlp:8,8", "regular:6,k=3,seed=1", 4, 3, (1, 28, 28), 200)
    return _against_rivals(request, work, (NAIVE, VMAP), rounds=5, gossipy=True)


def _fitted(request: Request, full: Workload, small: str, tiny: str) -> Workload:
    """Return a workload that suits the device: on a few cores an iteration of a deep net takes a minute."""
    if request.quick:
        return Workload(tiny, full.network, 2, 2, (3, 8, 8), 200)
    return full if request.cuda else Workload(small, full.network, 16, full.delay)


def _against_rivals(
    request: Request, work: Workload, rivals: tuple[str, ...], *, rounds: int, gossipy: bool = False
) -> Measured:
    request.say("building")
    task = work.task()
    training = work.training(request, task)
    # 64 steps: batches are drawn for 64 steps at once, and each block includes one draw.
    steps = 64 if request.cuda or work.model.startswith("mlp") else 2
    rival_steps = request.count(max(1, steps // RIVAL_SHARE))
    race = request.race(rounds)
    ours = contestant(training, OURS, request.count(steps), work.delay + 2)
    others = _rivals(request, work, task, rivals, rival_steps)
    if gossipy:
        # Nodes of gossipy send only parameters, like D-ASGD.
        plain = work.training(request, task, "d-asgd")
        others.insert(0, contestant(plain, OURS_PLAIN, request.count(steps), work.delay + 2))
    timings = race.run([ours, *others])
    labels = [OURS, *(one.label for one in others)]
    if gossipy:
        labels.append(GOSSIPY)
        if not race.interrupted:
            _time_gossipy(request, work, training, race, timings, rival_steps)
    rows = compared(labels, timings, race.notes)
    return Measured(work.describe(request, training), rows, interrupted=race.interrupted)


def _rivals(request: Request, work: Workload, task: Task, names: tuple[str, ...], steps: int) -> list[Contestant]:
    """Make the rivals on the engine's own first batch."""
    inputs, targets = work.batch_of(request, task)
    dtype = torch.bfloat16 if request.precision == "bf16" else torch.float32
    makers: dict[str, Callable[[], NaiveLoop | Vmapped | OneModel]] = {
        NAIVE: lambda: NaiveLoop(task, inputs, targets),
        VMAP: lambda: Vmapped(task, inputs, targets),
        ONE: lambda: OneModel(task, inputs, targets, dtype),
    }
    return [Contestant(name, makers[name]().step, 3, steps, lambda: generous(request), may_fail=True) for name in names]


def _time_gossipy(
    request: Request, work: Workload, training: Training, race: Race, timings: dict[str, Timing], count: int
) -> None:
    """Time gossipy after the others, on the CPU: its simulator cannot be paused."""
    if not gossip.installed():
        race.notes[GOSSIPY] = "not installed"
        return
    request.say(GOSSIPY)
    inputs, targets = (tensor.cpu() for tensor in work.batch_of(request, training.task))
    wanted = race.rounds * count
    with generous(request):
        seconds = gossip.rounds(training.task, inputs, targets, training.network, work.delay, wanted)
    race.interrupted = len(seconds) < wanted  # gossipy catches Ctrl+C and returns the rounds so far
    blocks = [1000 * sum(seconds[i : i + count]) / count for i in range(0, len(seconds) - count + 1, count)]
    if blocks:
        timings[GOSSIPY] = Timing.of(blocks)


def compared(labels: list[str], timings: dict[str, Timing], notes: dict[str, str]) -> list[BenchRow]:
    """Return a row per label; `faster` is its time divided by the time of the first label."""
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


def _add_floor(request: Request, work: Workload, measured: Measured) -> None:
    """Add the memory-traffic floor: the time to move the necessary bytes."""
    if measured.interrupted:
        return
    request.say("memory traffic")
    size = 2 if request.precision == "bf16" else 4
    with torch.random.fork_rng(devices=[]):
        moved = elements_moved(work.module(), work.shape) * work.num_agents * work.batch * size
    rate = copy_rate(request.device, 2**30 if request.cuda else 2**26)
    floor = 1000 * moved / rate
    measured.facts |= {"bytes_moved": moved, "copy_rate": rate, "floor_ms": floor}
    if "ms" in measured.rows[0]:
        measured.facts["over_floor"] = measured.rows[0]["ms"] / floor
