"""The case of seconds: what an agent's step costs on a testbed, beside the simulator in steps, and an event alone."""

import statistics
import time
from dataclasses import dataclass

from gossamer.bench.cases import BenchRow, Measured, Request, case
from gossamer.bench.workloads import Workload
from gossamer.engine.timed.timed_simulation import TimedSimulation
from gossamer.engine.timed.timetable import Timetable
from gossamer.engine.training import Training
from gossamer.network import network
from gossamer.run.machine import arithmetic
from gossamer.testbed import testbed

DELAY = 5  # steps; on the testbed the latency of as many iterations
SPREAD = 4.0  # the slowest agent's time over the fastest one's
RULE = "sdm-asgd"
ROUNDS = 3
WAYS = {"steps": "in steps", "equal": "in seconds, equal speeds", "spread": f"in seconds, speeds over {SPREAD:g} times"}


@dataclass(frozen=True)
class TimedWork:
    """A workload and how many steps of each agent a block has."""

    work: Workload
    steps: int


def _works(request: Request) -> list[TimedWork]:
    small = Workload("preresnet:8", "paper-1", 16, DELAY, (3, 16, 16), 8000)
    mlp = Workload("mlp:256,256", "paper-1", 128, DELAY, (1, 28, 28), 8000)
    sparse = [TimedWork(_sparse(number), steps) for number, steps in ((100, 20), (1000, 6), (10_000, 3))]
    return [TimedWork(_sparse(12), 2)] if request.quick else [TimedWork(small, 15), TimedWork(mlp, 30), *sparse]


def _sparse(agents: int) -> Workload:
    return Workload("mlp:16", f"regular:{agents},k=4", 4, DELAY, (1, 8, 8), 50 * agents)


@case("seconds", "Agents on a testbed, beside the simulator in steps", usual_on=(), only_on="cpu")
def seconds(request: Request) -> Measured:
    """Measure the processor time of an agent's step in both simulators, in turns, and of an event of the queue."""
    measured = Measured(
        f"{RULE}, delay {DELAY} or a latency of as many iterations, {request.threads} threads; processor time, medians "
        f"of {ROUNDS} blocks in turns; *of steps*: the rate beside the simulator in steps"
    )
    try:
        for timed in _works(request):
            request.say(timed.work.model)
            measured.rows += _rows(request, timed)
        for agents in (12,) if request.quick else (100, 10_000):
            measured.rows.append(_event_row(agents))
    except KeyboardInterrupt:
        measured.interrupted = True
    return measured


def _rows(request: Request, timed: TimedWork) -> list[BenchRow]:
    task = timed.work.task()
    trainings = {way: _training(request, timed, task, way) for way in WAYS}
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(ROUNDS + 1):
        for way, training in trainings.items():
            with arithmetic(training.settings):
                found = _block(training, timed.steps)
            if number:  # the first block warms up
                times[way].append(found)
    usual = statistics.median(times["steps"])
    label = f"{timed.work.model}, {timed.work.num_agents} agents"
    rows: list[BenchRow] = []
    for way, name in WAYS.items():
        each = statistics.median(times[way])
        rows.append({"label": f"{label}, {name}", "us_agent": 1e6 * each, "of_steps": 100 * usual / each})
    return rows


def _training(request: Request, timed: TimedWork, task: object, way: str) -> Training:
    work = timed.work
    if way == "steps":
        return work.training(request, task, RULE, execution="stacked")  # type: ignore[arg-type]
    last = work.num_agents - 1
    slow = (
        ""
        if way == "equal"
        else "".join(
            f";compute={','.join(f'{1 + (SPREAD - 1) * agent / last:.6f}' for agent in range(work.num_agents))}"
        )
    )
    bed = f"lan:{work.num_agents};latency={DELAY}s;bandwidth=1e15{slow}"
    more = {"execution": "stacked", "delay": None, "testbed": bed}
    return work.training(request, task, RULE, **more)  # type: ignore[arg-type]


def _block(training: Training, steps: int) -> float:
    """Return the processor seconds of an agent's step."""
    simulation, agents = training.simulation, training.network.num_agents
    begun = time.process_time()
    if not isinstance(simulation, TimedSimulation):
        for _ in range(steps):
            simulation.step()
        return (time.process_time() - begun) / (steps * agents)
    done = 0
    while done < steps * agents:
        done += sum(len(report.agents) for report in simulation.advance(float("inf")) or [])
    return (time.process_time() - begun) / done


def _event_row(agents: int) -> BenchRow:
    """Measure the queue alone: iterations that end, messages that are sent and taken; each is an event."""
    net = network(f"regular:{agents},k=4")
    bed = testbed(agents=agents, compute="lognormal:1,0.3", latency=2.3, bandwidth=100.0)
    table = Timetable(bed, net, 0, [40] * len(net.pattern))
    begun, events = time.process_time(), 0
    while events < 300_000 and (moment := table.next()) is not None:
        for agent in table.publish(moment, dict.fromkeys(moment.ended)):
            events += 1 + 2 * len(table.hear(agent).ages)
            table.begin(agent)
    spent = time.process_time() - begun
    return {"label": f"an event of the queue, {agents} agents", "us_agent": 1e6 * spent / events}
