"""A training run with one process per agent, with the same files and summary as a run of the simulator."""

import math
import secrets
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import nn

from gossamer.errors import UserError
from gossamer.run.agent_folder import AgentFolder
from gossamer.run.folder import RunFolder
from gossamer.run.machine import check_device
from gossamer.run.metric_rows import mean
from gossamer.run.plan import Plan
from gossamer.run.process_settings import ProcessSettings
from gossamer.run.status import StatusFile
from gossamer.run.summary import MeasuredValues, OfAverage, ProcessesSummary, finite_or_nan, make_summary
from gossamer.runtime.age_trace import merge_traces
from gossamer.runtime.compression import parse_codec
from gossamer.runtime.environment import Run
from gossamer.runtime.launch.job import LaunchJob, LaunchReport, Watcher
from gossamer.runtime.launch.launcher import Launcher
from gossamer.runtime.node import check_rule
from gossamer.runtime.timing_record import merge_timings
from gossamer.runtime.transport.fault_spec import parse_faults
from gossamer.shapes import Float, Tensor
from gossamer.train.processes.launch_status import StatusRecorder, how_it_ended
from gossamer.train.processes.merged_rows import GrowingHistory, write_history
from gossamer.train.processes.worker import evaluate


def check(made: Plan, how: ProcessSettings) -> None:
    """Refuse settings that the agents would refuse, and those that need the simulator."""
    settings = made.settings
    check_device(settings.device)
    if how.record is not None and (not how.record.endswith(".csv") or Path(how.record).exists()):
        raise UserError(f"cannot record to '{how.record}'; give the name of a .csv file that does not exist yet")
    parse_codec(how.compress)
    parse_faults(how.faults or "", made.network.num_agents)
    check_rule(made.algorithm, made.network, plain=not (settings.momentum or settings.weight_decay))
    only = {
        "precision": (settings.precision, ("float32",)),
        "compile": (settings.compile, (False,)),
        "history": (settings.history, ("state",)),
        "norm_stats": (settings.norm_stats, ("local",)),
        "execution": (settings.execution, ("auto", "loop")),
    }
    for name, (value, allowed) in only.items():
        if value not in allowed:
            raise UserError(
                f"{name}={value} needs the simulator; with --engine processes use {name}={str(allowed[-1]).lower()}"
            )


def train(
    made: Plan,
    folder: RunFolder,
    how: ProcessSettings,
    *,
    watcher: Watcher | None = None,
    stop: Callable[[], object] = lambda: None,
) -> ProcessesSummary:
    """Run all agents to the end; write the summary of the run to its folder, and return it."""
    run = Run(  # each agent makes the network itself
        agents=made.network.num_agents,
        run=f"train-{secrets.token_hex(8)}",
        seed=made.settings.seed,
        record=how.record is not None,
        **{**how.links, "max_age": max(how.max_age, made.network.delay.largest + 1)},
    )
    job = LaunchJob(
        run=run,
        ranks=tuple(range(run.agents)),
        script=folder.path,  # the argument of the worker, see `_command`
        folder=folder.path,
        max_restarts=how.max_restarts,
    )
    for rank in job.ranks:
        AgentFolder(folder.path, rank).begin()
    growing = GrowingHistory(folder, run.agents)
    file = StatusFile(folder.path, steps=made.steps, steps_per_epoch=made.steps_per_epoch)
    told = StatusRecorder(watcher or Watcher(), file, also=lambda *_: growing.look())
    report = Launcher(job, told, command=_command, preload=True).run(stop)
    told.end(how_it_ended(report))  # in case the summary fails
    if how.record is not None:
        merge_traces(folder.path, Path(how.record))
        merge_timings(folder.path, run.agents, run)
    summary = _summary(made, folder, how, report)
    folder.write_summary(summary)
    told.end(summary["status"])
    return summary


def _command(job: LaunchJob, rank: int) -> list[str]:
    return [sys.executable, "-m", "gossamer.train.processes.worker", str(job.script.resolve())]


def _summary(made: Plan, folder: RunFolder, how: ProcessSettings, report: LaunchReport) -> ProcessesSummary:
    agents = [AgentFolder(folder.path, rank) for rank in range(made.network.num_agents)]
    rows = [agent.rows() for agent in agents]
    history = write_history(folder, rows)
    lasts = [of_one[max(of_one)] if of_one else None for of_one in rows]
    there = [last for last in lasts if last is not None]
    if not there:
        raise UserError(f"no agent got as far as its first evaluation; see {folder.path / 'agent-0.log'}")
    module = made.task.fresh_module(made.settings.seed).module
    messages = sum(last["messages"] for last in there)
    measured: MeasuredValues = {
        "iterations": min(last["step"] for last in there),
        "accuracy_per_agent": [None if last is None else last["accuracy"] for last in lasts],
        "accuracy_best": max((statistics.fmean(row["accuracy"]) for row in history), default=None),
        **_of_the_average(made, module, agents),
        "loss_mean": statistics.fmean(finite_or_nan([last["loss"] for last in there])),
        "predict_fraction": mean(last["predict_run"] for last in there),
        "message_age": sum(last["age_sum"] for last in there) / messages if messages else None,
        "evaluated_step": min(last["step"] for last in there),
        "bytes_sent_per_agent": [0 if last is None else last["bytes_sent"] for last in lasts],
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "execution": "loop",  # each process has one model
        "norm_stats": made.settings.norm_stats if any(True for _ in module.buffers()) else None,
        "memory_estimate": None,  # each process has its own memory
        "memory_peak": None,
        "status": _status(agents, report),
        "seconds": report.seconds,
        "run_dir": str(folder.path),
    }
    return {
        **make_summary(made, measured, history, "seconds"),
        "engine": "processes",
        "lockstep": how.lockstep,
        "transport": how.transport,
        "compress": how.compress,
        "restarts": [outcome.restarts for outcome in report.outcomes],
    }


def _status(agents: list[AgentFolder], report: LaunchReport) -> str:
    """Say how the run ended: as the first agent that did not finish, or finished."""
    if report.hopeless or report.interrupted:
        return how_it_ended(report)
    ends = [agent.status or f"agent {rank} did not end by itself" for rank, agent in enumerate(agents)]
    return next((end for end in ends if end != "finished"), "finished")


def _of_the_average(made: Plan, module: nn.Module, agents: list[AgentFolder]) -> OfAverage:
    """Evaluate the average of the agents' last models, and how far they are from it."""
    states = [agent.checkpoints.load() for agent in agents if agent.checkpoints.exist()]
    if len(states) < len(agents):
        return {"accuracy_average_model": None, "consensus_distance": None}
    module = module.to(getattr(torch, made.settings.dtype))
    names = [f"model.{name}" for name in module.state_dict()]
    mean = {name: _mean([state[name] for state in states]) for name in names}
    module.load_state_dict({name.removeprefix("model."): value for name, value in mean.items()})
    learnt = [f"model.{name}" for name, _ in module.named_parameters()]
    distances = [_distance(state, mean, learnt) for state in states]
    return {
        "accuracy_average_model": evaluate(module, made.task)[0],
        "consensus_distance": statistics.fmean(distances),
    }


def _mean(values: list[Tensor]) -> Tensor:
    first = values[0]
    return torch.stack(values).mean(dim=0) if first.is_floating_point() else first


def _distance(
    state: Mapping[str, Float[Tensor, "..."]], mean: Mapping[str, Float[Tensor, "..."]], names: list[str]
) -> float:
    return math.sqrt(sum(float((state[name] - mean[name]).double().square().sum()) for name in names))
