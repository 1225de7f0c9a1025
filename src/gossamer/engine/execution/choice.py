"""Makes an execution by name, or measures which one is fastest."""

import copy
import time
from dataclasses import replace

import torch

from gossamer.engine.execution.base import Execution, Setup
from gossamer.engine.execution.stacked_models import StackedExecution
from gossamer.engine.execution.unstacked import LoopExecution, VmapExecution
from gossamer.errors import UserError
from gossamer.shapes import Tensor

EXECUTIONS: dict[str, type[Execution]] = {
    execution.name: execution for execution in (StackedExecution, VmapExecution, LoopExecution)
}
MARGIN = 1.2  # another execution must be this much faster than stacked, so that noise does not decide a near tie
FEW = 16  # examples per agent of the first measurement
MOST_AGENTS = 256  # in a measurement: the seconds of more are in proportion
LONGEST = 0.3  # seconds; where a gradient on the whole batch would take longer, the few examples decide
TRIES, BUDGET = 3, 1.0  # rounds of a measurement, and seconds after which there is no further one
MOST_AGENTS = 256  # in a measurement: the seconds of more are in proportion


def make_execution(name: str, setup: Setup) -> Execution:
    """Make an execution with its own copy of the module."""
    return EXECUTIONS[name](replace(setup, module=copy.deepcopy(setup.module)))


def choose_execution(setup: Setup, inputs: Tensor, targets: Tensor) -> tuple[str, dict[str, float]]:
    """Return the fastest execution for these examples, and the seconds per gradient of each execution.

    They take turns, on the whole batch if that is quick. An execution that cannot run the model is left out.
    """
    times = max(1.0, setup.num_agents / MOST_AGENTS)
    setup = replace(setup, num_agents=min(setup.num_agents, MOST_AGENTS))
    inputs, targets = inputs[: setup.num_agents], targets[: setup.num_agents]
    few = inputs[:, :FEW], targets[:, :FEW]
    executions: dict[str, Execution] = {}
    failures = []
    for name in EXECUTIONS:
        try:
            execution = make_execution(name, setup)
            _seconds(execution, *few)  # the set-up does not count
            executions[name] = execution
        except (UserError, RuntimeError) as error:
            failures.append(error)
    if not executions:
        raise failures[0]
    seconds = _race(executions, *few)
    if min(seconds.values()) * inputs.shape[1] / few[0].shape[1] <= LONGEST:
        seconds = _race(executions, inputs, targets)
    seconds = {name: times * value for name, value in seconds.items()}
    handicap = {name: value * (1 if name == "stacked" else MARGIN) for name, value in seconds.items()}
    return min(handicap, key=handicap.__getitem__), seconds


def _race(executions: dict[str, Execution], inputs: Tensor, targets: Tensor) -> dict[str, float]:
    """Return the best time of each execution over a few rounds, in which they take turns."""
    rounds: list[dict[str, float]] = []
    while len(rounds) < TRIES and sum(sum(one.values()) for one in rounds) < BUDGET:
        rounds.append({name: _seconds(execution, inputs, targets) for name, execution in executions.items()})
    return {name: min(one[name] for one in rounds) for name in executions}


def _seconds(execution: Execution, inputs: Tensor, targets: Tensor) -> float:
    """Return the time of a gradient at a new state, as in an iteration."""
    x = execution.setup.module.initial().to(execution.parameters).repeat(len(inputs), 1)
    with torch.random.fork_rng(devices=[]):  # dropout here must not shift the draws of the run
        before = time.perf_counter()
        execution.gradient(x, inputs, targets)
        return time.perf_counter() - before
