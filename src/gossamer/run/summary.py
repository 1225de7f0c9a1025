"""The summary of a run, `summary.json`. Both engines write the same keys."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from gossamer.run.plan import Plan
from gossamer.run.target import ToTarget, to_target


class OfAverage(TypedDict):
    """Measurements of the averaged model. None: the model of some agent is missing."""

    accuracy_average_model: float | None
    consensus_distance: float | None  # mean distance of the agents from the averaged model


class MeasuredValues(OfAverage):
    """What an engine measured. None: unknown, or does not apply."""

    iterations: int  # of the slowest agent
    accuracy_per_agent: list[float | None]  # None: an agent that was never evaluated
    accuracy_best: float | None  # the largest mean over agents at any evaluation
    loss_mean: float
    predict_fraction: float | None  # fraction of steps that predict, among those with a choice
    message_age: float | None  # mean, in steps
    evaluated_step: int
    bytes_sent_per_agent: list[int]
    parameters: int
    execution: str
    norm_stats: str | None  # None: the model keeps no running statistics
    memory_estimate: int | None
    memory_peak: int | None
    status: str  # finished, interrupted, time limit, or the error that ended the run
    seconds: float
    run_dir: str | None


class Summary(MeasuredValues, ToTarget):
    """The plan of the run and its measurements."""

    algorithm: str
    network: str
    delay: int | float | str
    task: str
    model: str
    seed: int
    epochs: int
    validation: float
    accuracy_mean: float
    accuracy_std: float
    bytes_sent: int
    agents: int
    clusters: list[list[int]]
    clusters_discovered: bool
    tau_discovered: int | None
    lr: float
    options: dict[str, Any]
    precision: str


class TimedSummary(Summary):
    """The summary of a run on a testbed."""

    testbed: str
    sim_seconds: float
    iterations_per_agent: list[int]
    gradients_per_agent: list[int]  # iterations that ended; of agents that wait, one may be more than its updates
    waiting_seconds_per_agent: list[float]
    down_seconds_per_agent: list[float]
    goodput: float  # time computing / time, mean over agents
    goodput_per_agent: list[float]


class ProcessesSummary(Summary):
    """The summary of a run with one process per agent."""

    engine: str  # "processes"
    lockstep: bool
    transport: str
    compress: str
    restarts: list[int]  # per agent


def make_summary(
    plan: Plan, measured: MeasuredValues, history: Sequence[Mapping[str, Any]], clock: str = "sim_seconds"
) -> Summary:
    """Combine the plan with the measurements of an engine, and its evaluations; `clock` is the name of their time."""
    settings, network = plan.settings, plan.network
    accuracy = [value for value in measured["accuracy_per_agent"] if value is not None]
    return {
        "algorithm": plan.algorithm.name,
        "network": network.spec,
        "delay": network.delay.as_json(),
        "task": plan.task.name,
        "model": plan.task.model_name,
        "seed": settings.seed,
        "epochs": settings.epochs,
        "validation": settings.validation,
        "accuracy_mean": statistics.fmean(accuracy),
        "accuracy_std": statistics.pstdev(accuracy),
        "bytes_sent": sum(measured["bytes_sent_per_agent"]),
        "agents": network.num_agents,
        "clusters": [list(members) for members in network.clusters or ()],
        "clusters_discovered": network.clusters is not None and not network.clusters_given,
        "tau_discovered": plan.tau,
        "lr": settings.lr,
        "options": dict(settings.options),
        "precision": settings.precision,
        **to_target(settings.target, history, clock),
        **measured,
    }


def finite_or_nan(values: Sequence[float | None]) -> list[float]:
    """Return the values with NaN for None: JSON files store non-finite numbers as null."""
    return [math.nan if value is None else value for value in values]
