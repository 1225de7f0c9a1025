"""Makes an execution by name, or measures which one is fastest."""

import copy
import time
from collections.abc import Callable
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
PATIENCE = 10  # seconds; a first call, which includes the set-up, is not repeated if it takes longer
LARGEST_BATCH = 16  # most examples per agent in a measurement
MOST_AGENTS = 256  # in a measurement: the seconds of more are in proportion


def make_execution(name: str, setup: Setup) -> Execution:
    """Make an execution with its own copy of the module."""
    return EXECUTIONS[name](replace(setup, module=copy.deepcopy(setup.module)))


def choose_execution(setup: Setup, inputs: Tensor, targets: Tensor) -> tuple[str, dict[str, float]]:
    """Return the fastest execution for these examples, and the seconds per gradient of each execution.

    An execution that cannot run the model is left out.
    """
    times = max(1.0, setup.num_agents / MOST_AGENTS)
    setup = replace(setup, num_agents=min(setup.num_agents, MOST_AGENTS))
    inputs, targets = (tensor[: setup.num_agents, :LARGEST_BATCH] for tensor in (inputs, targets))
    seconds: dict[str, float] = {}
    failures = []
    for name in EXECUTIONS:
        try:
            seconds[name] = times * _measure(make_execution(name, setup), inputs, targets)
        except (UserError, RuntimeError) as error:
            failures.append(error)
    if not seconds:
        raise failures[0]
    handicap = {name: value * (1 if name == "stacked" else MARGIN) for name, value in seconds.items()}
    return min(handicap, key=handicap.__getitem__), seconds


def _measure(execution: Execution, inputs: Tensor, targets: Tensor) -> float:
    """Return the best of a few timings. The first call, which includes the set-up, does not count."""
    x = execution.setup.module.initial().to(execution.parameters).repeat(len(inputs), 1)

    def run() -> None:
        execution.gradient(x, inputs, targets)

    first = _timed(run)
    if first > PATIENCE:
        return first
    timings = [_timed(run)]
    while len(timings) < 3 and sum(timings) < 1:
        timings.append(_timed(run))
    return min(timings)


def _timed(run: Callable[[], None]) -> float:
    before = time.perf_counter()
    with torch.random.fork_rng(devices=[]):  # dropout here must not shift the draws of the run
        run()
    return time.perf_counter() - before
