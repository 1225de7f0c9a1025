"""Cases of the engine by itself: what the algorithms cost, how memory grows with the delay, a thousand agents."""

import torch

from gossamer.algorithms import algorithm_names
from gossamer.bench.cases import BenchRow, Measured, Request, case
from gossamer.bench.measure import Contestant, Timing, free_memory, timed
from gossamer.bench.workloads import Workload, contestant
from gossamer.engine.memory_need import peak_bytes
from gossamer.engine.training import Training
from gossamer.run.machine import arithmetic

BASE = "d-asgd"
PV = "pc-asgd/theta=pv"
DELAYS = (5, 20, 60)
USUAL_DELAY = 20
TINY = Workload("mlp:8", "paper-1", 2, USUAL_DELAY, (1, 4, 4), 200)


@case("algorithms", "Complete iterations of every algorithm")
def algorithms(plan: Request) -> Measured:
    """Time every algorithm at the paper's delay, and the main ones at others, taking turns."""
    work = Workload("preresnet:110", "paper-1", 128, USUAL_DELAY)
    if not plan.cuda:
        work = Workload("mlp:256,256", "paper-1", 128, USUAL_DELAY, (1, 28, 28), 20_000)
    if plan.quick:
        work = TINY
    delays = (2, 5) if plan.quick else DELAYS
    usual = delays[-1] if plan.quick else USUAL_DELAY
    entries = [(name, usual) for name in (*algorithm_names(), PV)]
    entries += [(name, delay) for delay in delays if delay != usual for name in (BASE, "pc-asgd", PV)]
    race = plan.race(5)
    contestants, training = _in_turn(plan, work, entries, plan.count(32), max(delays) + 2)
    race.run(contestants)
    about = work.describe(plan, training, delay=False)
    return Measured(about, over_base(entries, race.timings), interrupted=race.interrupted)


def _label(name: str, delay: int) -> str:
    return f"{name} at delay {delay}"


def _in_turn(
    plan: Request, work: Workload, entries: list[tuple[str, int]], steps: int, warm_up: int
) -> tuple[list[Contestant], Training]:
    """Build one run for each entry. All get the warm-up of the longest delay, so that they stand at the same step."""
    task = work.task()
    contestants: list[Contestant] = []
    first: Training | None = None
    for name, delay in entries:
        plan.say(f"building {_label(name, delay)}")
        training = work.with_delay(delay).training(plan, task, name)
        first = first or training
        # One source of gradients for all: each would hold the model's activations, and costs the same time.
        training.simulation.source = first.simulation.source
        contestants.append(contestant(training, _label(name, delay), steps, warm_up))
    assert first is not None
    return contestants, first


def over_base(entries: list[tuple[str, int]], timings: dict[str, Timing]) -> list[BenchRow]:
    """Return a row for each entry; `over` is the share of time that it takes more than D-ASGD at the same delay."""
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


@case("memory", "Peak memory against the formula", usual_on=("cuda",), needs_cuda=True)
def memory(plan: Request) -> Measured:
    """Measure what training steps allocate at most, for each delay, algorithm and kind of history."""
    work = TINY if plan.quick else Workload("preresnet:110", "paper-1", 128, USUAL_DELAY)
    about = f"{work.model}, {work.num_agents} agents ({work.network}), batch {work.batch}, precision {plan.precision}"
    measured = Measured(about)
    entries = [(name, delay, kept) for name in ("pc-asgd", BASE) for delay in DELAYS for kept in ("state", "bf16")]
    try:
        for name, delay, kept in entries:
            plan.say(f"{_label(name, delay)}, history {kept}")
            measured.rows.append(_peak(plan, work.with_delay(delay), name, kept))
    except KeyboardInterrupt:
        measured.interrupted = True
    return measured


def _peak(plan: Request, work: Workload, name: str, kept: str) -> BenchRow:
    free_memory(plan.device)
    torch.cuda.reset_peak_memory_stats(plan.device)
    before = torch.cuda.memory_allocated(plan.device)
    training = work.training(plan, work.task(), name, history=kept)
    with arithmetic(training.settings):
        timed(training.simulation.step, work.delay + 4, plan.device)
    planned, x = training.memory, training.simulation.x
    vectors = len(training.simulation.mailbox.rings)
    return {
        "label": name,
        "delay": work.delay,
        "history": kept,
        "peak": torch.cuda.max_memory_allocated(plan.device) - before,
        "reserved": torch.cuda.max_memory_reserved(plan.device),
        "formula": vectors * (work.delay + 2) * x.numel() * (2 if kept == "bf16" else 4),
        "histories": planned.histories,
        "states": planned.states,
        "activations": planned.activations + planned.batches,
        "data": planned.data,
        "estimate": planned.on_device,
    }


@case("thousand", "A thousand agents", usual_on=("cuda",))
def thousand(plan: Request) -> Measured:
    """Time a thousand small convolutional nets in a ring."""
    work = Workload("cnn", "ring:1000", 16, 5)
    if plan.quick:
        work = Workload("cnn:4", "ring:8", 2, 2, (3, 8, 8), 200)
    if plan.cuda:
        torch.cuda.reset_peak_memory_stats(plan.device)
    training = work.training(plan, work.task())
    race = plan.race(3)
    label = "gossamer, PC-ASGD"
    timing = race.run([contestant(training, label, plan.count(64 if plan.cuda else 2), work.delay + 2)]).get(label)
    row: BenchRow = {"label": label, "note": "not measured"}
    if timing is not None:
        row = {"label": label, "ms": timing.ms, "low": timing.low, "high": timing.high}
        row |= {"examples": 1000 * work.num_agents * work.batch / timing.ms, "peak": peak_bytes(plan.device)}
    return Measured(work.describe(plan, training), [row], interrupted=race.interrupted)
