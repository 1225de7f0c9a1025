"""Builds the simulation of a run from its plan: examples, models, histories and evaluation."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from gossamer.data import Examples
from gossamer.data.device_batches import DeviceBatches
from gossamer.engine.execution import Execution, choose_execution, make_execution
from gossamer.engine.execution.base import Setup
from gossamer.engine.gradients import TaskSource
from gossamer.engine.memory_need import Memory, check_fits, estimate
from gossamer.engine.metrics import Evaluator
from gossamer.engine.norm_statistics import Statistics
from gossamer.engine.simulation import Simulation
from gossamer.engine.timed.task_source import TimedTaskSource
from gossamer.engine.timed.timed_simulation import TimedSimulation
from gossamer.run.machine import arithmetic, check_device
from gossamer.run.plan import Plan, batches_of
from gossamer.run.settings import Settings
from gossamer.state.local import LocalOptimizer
from gossamer.tasks import Task

PREPARED_BYTES = 2**28

# The chosen execution by kind of run, so that all runs of a comparison use the same one. Keeping the model object keeps
# its id, which is part of the key, from being reused.
_chosen: dict[tuple[object, ...], tuple[str, dict[str, float], object]] = {}


@dataclass(frozen=True)
class Assembly:
    """The parts of a run, and the notes to print before it starts."""

    simulation: Simulation | TimedSimulation
    evaluate: Evaluator
    settings: Settings  # with the chosen execution
    memory: Memory
    notes: dict[str, str]  # by subject


def assemble(plan: Plan) -> Assembly:
    """Build all parts. Every check comes before anything large is allocated."""
    settings, network, algorithm, shards = plan.settings, plan.network, plan.algorithm, plan.shards
    device, num_agents = check_device(settings.device), network.num_agents
    dtype: torch.dtype = getattr(torch, settings.dtype)
    task = _prepared(plan.task, settings, torch.bfloat16 if settings.precision == "bf16" else dtype)
    setup = Setup(
        task, task.fresh_module(settings.seed), num_agents, device, dtype, settings.precision, settings.compile
    )
    frozen = setup.module.frozen.to(device)
    local = LocalOptimizer(
        momentum=settings.momentum,
        nesterov=settings.nesterov,
        weight_decay=settings.weight_decay,
        frozen=frozen if bool(frozen.any()) else None,
    )
    memory = estimate(setup, algorithm, network, batch=settings.batch, plain=local.plain, history=settings.history)
    check_fits(memory, device)
    # Moved once, shared by all batches.
    task = dataclasses.replace(task, train=task.train.to(device), test=task.test.to(device))
    setup = dataclasses.replace(setup, task=task)

    def batches_for(purpose: str) -> DeviceBatches:
        return batches_of(settings, task, shards, purpose, setup.working_dtype)

    batches = batches_for("batches")
    with arithmetic(settings):
        settings, measured = _with_execution(settings, setup, batches)
    execution = make_execution(settings.execution, setup)
    statistics = Statistics(execution.buffers, mixed=settings.norm_stats == "mixed") if execution.buffers else None
    start = task.initial(settings.init, num_agents, settings.seed).to(device=device, dtype=dtype)
    both: dict[str, Any] = {
        "lr": plan.schedule.at,
        "local": local,
        "segments": setup.module.segments,
        "seed": settings.seed,
        "statistics": statistics,
        "share": plan.share,
    }
    drawn = batches, batches_for("fresh-batches"), settings.seed
    simulation: Simulation | TimedSimulation
    if plan.testbed is None:
        source = TaskSource(execution, *drawn)
        simulation = Simulation(algorithm, network, source, start, history=settings.history, **both)
    else:
        timed = TimedTaskSource(setup, execution, *drawn)
        simulation = TimedSimulation(algorithm, network, plan.testbed, timed, start, **both)
    calibration = batches_for("calibration") if execution.buffers and settings.norm_stats == "recalibrated" else None
    sample = task.test_sample(settings.eval_examples, settings.seed) if settings.eval_examples else None
    evaluator = Evaluator(_evaluating(settings.execution, setup), calibration, sample)
    notes = {"execution": settings.execution + measured, "memory": str(memory)}
    return Assembly(simulation, evaluator, settings, memory, notes)


def _prepared(task: Task, settings: Settings, dtype: torch.dtype) -> Task:
    """On a CPU, prepare a small data set once: preparing each batch is slower."""
    parts = (task.train, task.test)
    small = sum(part.x.numel() for part in parts) * dtype.itemsize <= PREPARED_BYTES
    if task.prepare is None or settings.device != "cpu" or settings.augment == "crop-flip" or not small:
        return task
    train, test = (Examples(task.prepare(part.x, dtype), part.y) for part in parts)
    return dataclasses.replace(task, train=train, test=test, prepare=None)


def _with_execution(settings: Settings, setup: Setup, batches: DeviceBatches) -> tuple[Settings, str]:
    """Choose the execution: the requested one, stacked on a GPU, or the fastest. Also return the timings as text."""
    if settings.execution != "auto":
        return settings, ""
    if setup.device != "cpu" or settings.precision == "bf16" or settings.compile:
        return dataclasses.replace(settings, execution="stacked"), ""
    task = setup.task
    model = id(task.model) if task.model_name == "custom" else task.model_name
    key = (task.name, model, setup.num_agents, settings.batch, settings.dtype, settings.threads)
    if key not in _chosen:
        _chosen[key] = (*choose_execution(setup, *batches.load(batches.draw(0))), task.model)
    name, seconds, _ = _chosen[key]
    measured = ", ".join(f"{other} {1000 * value:.3g} ms" for other, value in seconds.items())
    return dataclasses.replace(settings, execution=name), f" (time per gradient: {measured})"


def _evaluating(name: str, setup: Setup) -> Execution:
    """Make the execution for evaluations: not compiled, with one more agent for the averaged model."""
    return make_execution(name, dataclasses.replace(setup, num_agents=setup.num_agents + 1, compile=False))
