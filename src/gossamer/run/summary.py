"""The summary of a run, `summary.json`: the same keys whichever engine ran it."""

import math
import statistics
from collections.abc import Sequence
from typing import Any, TypedDict

from gossamer.run.plan import Plan


class OfAverage(TypedDict):
    """The average of the agents' models. None: some agent's model is missing."""

    accuracy_average_model: float | None
    consensus_distance: float | None  # mean distance of the agents from it


class Measured(OfAverage):
    """What an engine measured, as it goes into the summary. None: not known, or not there."""

    iterations: int  # of the agent that took the fewest
    accuracy_per_agent: list[float | None]  # None: an agent that was never evaluated
    accuracy_best: float | None  # the largest mean over agents at any evaluation
    loss_mean: float
    predict_fraction: float | None  # the share of predicting in the steps with a choice
    message_age: float | None  # mean, in steps
    evaluated_step: int
    bytes_sent_per_agent: list[int]
    parameters: int
    execution: str
    norm_stats: str | None  # None: the model keeps no running statistics
    memory_estimate: int | None
    memory_peak: int | None
    status: str  # finished, interrupted, time limit, or why the run ended
    seconds: float
    run_dir: str | None


class Summary(Measured):
    """What the run was, from its plan, and what was measured."""

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


class ProcessesSummary(Summary):
    """With one process per agent, also how the processes ran."""

    engine: str  # "processes"
    lockstep: bool
    transport: str
    compress: str
    restarts: list[int]  # of each agent


def make_summary(plan: Plan, measured: Measured) -> Summary:
    """Join what the plan says with what the engine measured."""
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
        **measured,
    }


def finite_or_nan(values: Sequence[float | None]) -> list[float]:
    """Return values as they were measured: a file holds what is not finite as null."""
    return [math.nan if value is None else value for value in values]
