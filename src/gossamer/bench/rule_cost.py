"""The cost of rules alone, beside the gradient and beside the time to move the bytes that they read and write."""

import dataclasses

from gossamer.bench.cases import BenchRow, Measured, Request, case
from gossamer.bench.measure import Contestant, Timing, copy_rate
from gossamer.bench.workloads import Workload
from gossamer.engine.simulation import Simulation
from gossamer.engine.training import Training
from gossamer.run.machine import arithmetic
from gossamer.shapes import Float, Tensor

RULES = ("d-asgd", "pc-asgd/theta=0.3", "pc-asgd/theta=pv", "sdm-asgd", "sgp")
RANDOM = "uniform:5,60"
GRADIENT = "gradient alone"
MANY = Workload("mlp:128,128", "regular:100,k=4,seed=1", 64, 3, (1, 28, 28), 20_000)
EIGHT = Workload("mlp:256,256", "paper-1", 128, 20, (1, 28, 28), 20_000)
TINY = Workload("mlp:8,8", "regular:6,k=3,seed=1", 4, 3, (1, 28, 28), 200)


@dataclasses.dataclass(frozen=True)
class SameGradient:
    """A source that costs nothing: the gradient of one step, again and again."""

    g: Float[Tensor, "n d"]

    @property
    def offers(self) -> frozenset[str]:
        """No further evaluations."""
        return frozenset()

    def gradient(self, x: Float[Tensor, "n d"], step: int) -> tuple[Float[Tensor, "n d"], None]:
        """Return the gradient, and no loss."""
        return self.g, None

    def gradient_elsewhere(self, x: Float[Tensor, "n d"], step: int) -> Float[Tensor, "n d"]:
        """Return the same."""
        return self.g

    fresh_gradient = gradient_elsewhere

    def loss(self, x: Float[Tensor, "n d"], step: int) -> Float[Tensor, " n"]:
        """Return zeros."""
        return x.new_zeros(len(x))


@case("rules-many", "Rules alone, 100 agents with a small MLP", usual_on=())
def rules_many(request: Request) -> Measured:
    """Time rules where each agent has four late neighbours."""
    return _rules(request, TINY if request.quick else MANY)


@case("rules-eight", "Rules alone, 8 agents with an MLP", usual_on=())
def rules_eight(request: Request) -> Measured:
    """Time rules on the paper's network."""
    return _rules(request, TINY if request.quick else EIGHT)


def _rules(request: Request, work: Workload) -> Measured:
    task = work.task()
    first = work.training(request, task, "d-asgd")
    g, _ = first.simulation.source.gradient(first.simulation.x, 0)
    source = SameGradient(g.clone())
    entries = [(rule, str(work.delay)) for rule in RULES] + [(rule, RANDOM) for rule in RULES]
    moved: dict[str, int | None] = {}
    race = request.race(5)
    timings = race.run([_gradient(request, first)])
    for rule, delay in entries:  # one after the other: the histories of all together take too much memory
        if race.interrupted:
            break
        request.say(f"building {rule} at delay {delay}")
        training = work.training(request, task, rule, delay=delay)
        training.simulation.source = source
        warm_up = 66 if delay == RANDOM else 24
        timings = race.run([_rule(training, _label(rule, delay), request.count(8), warm_up, moved)])
    rate = copy_rate(request.device, 2**26)
    rows = [_row(rule, delay, timings, moved, rate) for rule, delay in entries]
    if GRADIENT in timings:
        rows.insert(0, {"label": GRADIENT} | _times(timings[GRADIENT]))
    about = work.describe(request, first, delay=False)
    return Measured(about, rows, {"copy_rate": rate}, interrupted=race.interrupted)


def _label(rule: str, delay: str) -> str:
    return f"{rule} at delay {delay}"


def _gradient(request: Request, training: Training) -> Contestant:
    source, x = training.simulation.source, training.simulation.x
    return Contestant(
        GRADIENT, lambda: source.gradient(x, 0), 3, request.count(8), lambda: arithmetic(training.settings)
    )


def _rule(training: Training, label: str, steps: int, warm_up: int, moved: dict[str, int | None]) -> Contestant:
    """Return a contestant that also notes how many bytes its last step has read and written, where that is known."""
    simulation = training.simulation

    def step() -> None:
        before = _bytes_moved(simulation)
        simulation.step()
        after = _bytes_moved(simulation)
        moved[label] = None if after is None or before is None else after - before

    return Contestant(label, step, warm_up, steps, lambda: arithmetic(training.settings))


def _bytes_moved(simulation: Simulation) -> int | None:
    return None if simulation.recorder is None else simulation.recorder.bytes_moved


def _times(timing: Timing) -> BenchRow:
    return {"ms": timing.ms, "low": timing.low, "high": timing.high}


def _row(rule: str, delay: str, timings: dict[str, Timing], moved: dict[str, int | None], rate: float) -> BenchRow:
    label = _label(rule, delay)
    row: BenchRow = {"label": rule, "delay": delay}
    if label not in timings:
        return row | {"note": "not measured"}
    row |= _times(timings[label])
    if GRADIENT in timings:
        row["with_gradient"] = 1 + row["ms"] / timings[GRADIENT].ms
    if delay != RANDOM and (count := moved.get(label)):  # with many ages few rows of a history slot are read
        row |= {"floor_ms": 1000 * count / rate, "over_floor": row["ms"] / (1000 * count / rate)}
    return row
