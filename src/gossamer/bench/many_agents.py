"""The case of many agents: what a run costs to build and by agent and step, as the number of agents grows."""

import time

from gossamer.bench.cases import BenchRow, Measured, Request, case
from gossamer.bench.workloads import Workload
from gossamer.engine.simulation import Simulation
from gossamer.engine.training import Training
from gossamer.run.machine import arithmetic
from gossamer.shapes import Float, Tensor

NUMBERS = (8, 100, 316, 1000, 3000, 10_000)
DELAYS = ("5", "uniform:1,9")
EXAMPLES_EACH = 50
WARM_UP = 12
MODEL, SHAPE, BATCH = "mlp:16", (1, 8, 8), 4


@case(
    "agents",
    "Many agents on a sparse graph: to build, and by agent and step",
    usual_on=(),
    only_on="cpu",
)
def agents(request: Request) -> Measured:
    """Measure a small MLP on a random graph of degree four, with a fixed and with random delays."""
    measured = Measured(f"{MODEL} on 8 x 8 images, regular:N,k=4, batch {BATCH}, D-ASGD, {request.threads} threads")
    numbers, steps = ((8, 12), 2) if request.quick else (NUMBERS, request.count(64))
    try:
        for number in numbers:
            for delay in DELAYS:
                request.say(f"{number} agents, delay {delay}")
                measured.rows.append(_row(request, number, delay, steps))
    except KeyboardInterrupt:
        measured.interrupted = True
    return measured


def _row(request: Request, number: int, delay: str, steps: int) -> BenchRow:
    work = Workload(MODEL, f"regular:{number},k=4", BATCH, 5, SHAPE, EXAMPLES_EACH * number)
    task = work.task()
    begun = time.process_time()
    training = work.training(request, task, "d-asgd", delay=delay)
    built = time.process_time() - begun
    simulation = training.simulation
    with arithmetic(training.settings):
        _seconds(simulation, WARM_UP)
        whole = _seconds(simulation, steps)
        gradient = _gradient_seconds(training, simulation.x, steps)
    return {
        "label": f"{number} agents",
        "delay": delay,
        "build": built,
        "us_agent": 1e6 * whole / number,
        "us_rest": 1e6 * (whole - gradient) / number,
    }


def _seconds(simulation: Simulation, steps: int) -> float:
    begun = time.process_time()
    for _ in range(steps):
        simulation.step()
    return (time.process_time() - begun) / steps


def _gradient_seconds(training: Training, x: Float[Tensor, "n d"], steps: int) -> float:
    simulation = training.simulation
    begun = time.process_time()
    for step in range(simulation.t, simulation.t + steps):
        simulation.source.gradient(x, step)
    return (time.process_time() - begun) / steps
