"""Cases of the engine alone: the cost of each algorithm, memory by delay, a thousand agents."""

import torch

from gossamer.algorithms import algorithm_names
from gossamer.bench.cases import BenchRow, Measured, Request, case
from gossamer.bench.measure import Contestant, Timing, timed
from gossamer.bench.workloads import Workload, contestant
from gossamer.engine.memory_need import peak_bytes
from gossamer.engine.training import Training
from gossamer.run.machine import arithmetic, free_memory

BASE = "d-asgd"
PV = "pc-asgd/theta=pv"
DELAYS = (5, 20, 60)
USUAL_DELAY = 20
TINY = Workload("mlp:8", "paper-1", 2, USUAL_DELAY, (1, 4, 4), 200)


@case("algorithms", "Complete iterations of every algorithm")
def algorithms(request: Request) -> Measured:
    """Time every algorithm at the paper's delay, and the main ones at other delays, in turns."""
    work = Workload("preresnet:110", "paper-1", 128, USUAL_DELAY)
    if not request.cuda:
        work = Workload("mlp:256,256", "paper-1", 128, USUAL_DELAY, (1, 28, 28), 20_000)
    if request.quick:
        work = TINY
    delays = (2, 5) if request.quick else DELAYS
    usual = delays[-1] if request.quick else USUAL_DELAY
    entries = [(name, usual) for name in (*algorithm_names(), PV)]
    entries += [(name, delay) for delay in delays if delay != usual for name in (BASE, "pc-asgd", PV)]
    race = request.race(5)
    contestants, training = _in_turn(request, work, entries, request.count(32), max(delays) + 2)
    race.run(contestants)
    about = work.describe(request, training, delay=False)
    return Measured(about, over_base(entries, race.timings), interrupted=race.interrupted)


def _label(name: str, delay: int) -> str:
    return f"{name} at delay {delay}"


def _in_turn(
    request: Request, work: Workload, entries: list[tuple[str, int]], steps: int, warm_up: int
) -> tuple[list[Contestant], Training]:
    """Build one run per entry. All warm up for the longest delay, so all are at the same step."""
    task = work.task()
    contestants: list[Contestant] = []
    first: Training | None = None
    for name, delay in entries:
        request.say(f"building {_label(name, delay)}")
        training = work.with_delay(delay).training(request, task, name)
        first = first or training
        # All share one source of gradients, because each would hold the activations of the model.
        training.simulation.source = first.simulation.source
        contestants.append(contestant(training, _label(name, delay), steps, warm_up))
    assert first is not None
    return contestants, first


def over_base(entries: list[tuple[str, int]], timings: dict[str, Timing]) -> list[BenchRow]:
    """Return a row per entry; `over` is its extra time as a share of the time of D-ASGD at the same delay."""
    rows: list[BenchRow] = []
    for name, delay in sorted(entries, key=lambda entry: entry[1] != USUAL_DELAY):
        row: BenchRow = {"label": name, "delay": delay}
        timing, base = timings.get(_label(name, delay)), timings.get(_label(BASE, delay))
        if timing is None:
            row["note"] = "not measured"
        else:
            row |= {"ms": timing.ms, "low": timing.low, "high": timing.high}
            row["over"] = None if base is None else timing.ms / base.ms - 1
        rows.append(row)
    return rows


@case("memory", "Peak memory against the formula", usual_on=("cuda",), only_on="cuda")
def memory(request: Request) -> Measured:
    """Measure the peak memory of training steps for each delay, algorithm and kind of history."""
    work = TINY if request.quick else Workload("preresnet:110", "paper-1", 128, USUAL_DELAY)
    about = (
        f"{work.model}, {work.num_agents} agents ({work.network}), batch {work.batch}, precision {request.precision}"
    )
    measured = Measured(about)
    entries = [(name, delay, kept) for name in ("pc-asgd", BASE) for delay in DELAYS for kept in ("state", "bf16")]
    try:
        for name, delay, kept in entries:
            request.say(f"{_label(name, delay)}, history {kept}")
            measured.rows.append(_peak(request, work.with_delay(delay), name, kept))
    except KeyboardInterrupt:
        measured.interrupted = True
    return measured


def _peak(request: Request, work: Workload, name: str, kept: str) -> BenchRow:
    free_memory(request.device)
    torch.cuda.reset_peak_memory_stats(request.device)
    before = torch.cuda.memory_allocated(request.device)
    training = work.training(request, work.task(), name, history=kept)
    with arithmetic(training.settings):
        timed(training.simulation.step, work.delay + 4, request.device)
    planned, x = training.memory, training.simulation.x
    vectors = len(training.simulation.mailbox.rings)
    return {
        "label": name,
        "delay": work.delay,
        "history": kept,
        "peak": torch.cuda.max_memory_allocated(request.device) - before,
        "reserved": torch.cuda.max_memory_reserved(request.device),
        "formula": vectors * (work.delay + 2) * x.numel() * (2 if kept == "bf16" else 4),
        "histories": planned.histories,
        "states": planned.states,
        "activations": planned.activations + planned.batches,
        "data": planned.data,
        "estimate": planned.on_device,
    }


@case("thousand", "A thousand agents", usual_on=("cuda",))
def thousand(request: Request) -> Measured:
    """Time a thousand small convolutional nets in a ring."""
    work = Workload("cnn", "ring:1000", 16, 5)
    if request.quick:
        work = Workload("cnn:4", "ring:8", 2, 2, (3, 8, 8), 200)
    if request.cuda:
        torch.cuda.reset_peak_memory_stats(request.device)
    training = work.training(request, work.task())
    race = request.race(3)
    label = "gossamer, PC-ASGD"
    timing = race.run([contestant(training, label, request.count(64 if request.cuda else 2), work.delay + 2)]).get(
        label
    )
    row: BenchRow = {"label": label, "note": "not measured"}
    if timing is not None:
        row = {"label": label, "ms": timing.ms, "low": timing.low, "high": timing.high}
        row |= {"examples": 1000 * work.num_agents * work.batch / timing.ms, "peak": peak_bytes(request.device)}
    return Measured(work.describe(request, training), [row], interrupted=race.interrupted)
