"""A training run in the simulator, from its settings to its summary."""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from gossamer.engine.assembly import assemble
from gossamer.engine.memory_need import has_plenty, peak_bytes
from gossamer.engine.metrics import Tally, TrainingStopped
from gossamer.engine.simulation import NonFinite, Simulation, StepReport
from gossamer.errors import UserError
from gossamer.network import NOTHING
from gossamer.run.folder import RunFolder
from gossamer.run.machine import arithmetic
from gossamer.run.metric_rows import MOST_PAIRED
from gossamer.run.plan import Plan
from gossamer.run.save_schedule import SaveSchedule
from gossamer.run.status import ALIVE, RUNNING, StatusFile
from gossamer.run.summary import MeasuredValues, Summary, finite_or_nan, make_summary
from gossamer.shapes import Float, Tensor
from gossamer.state.checkpoint import part_of

OnStep = Callable[[int, dict[str, Any] | None], None]  # (steps done, the new row of metrics if this step was evaluated)
Stop = Callable[[], str | bool | None]  # whether to stop now; a text such as "time limit" becomes the status of the run


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of a run."""

    summary: Summary
    history: list[dict[str, Any]]  # one row per evaluation, as in metrics.jsonl
    x: Float[Tensor, "n d"]  # the agents' last parameters
    run_dir: Path | None = None


class Training:
    """Builds the parts of a run from its settings, and runs it."""

    # A run on a testbed has a simulation and a tally of its own, with the same readings.
    simulation: Simulation
    tally: Tally

    def __init__(self, plan: Plan) -> None:
        parts = assemble(plan)
        self.simulation = cast(Simulation, parts.simulation)
        self.evaluate, self.settings = parts.evaluate, parts.settings
        self.memory, self.notes = parts.memory, parts.notes
        self._plenty = has_plenty(self.memory, self.settings.device)
        self.plan = plan = dataclasses.replace(plan, settings=parts.settings)
        self.task, self.network, self.algorithm = plan.task, plan.network, plan.algorithm
        self.steps_per_epoch, self.steps = plan.steps_per_epoch, plan.steps
        self.tally = self._make_tally()
        self.history: list[dict[str, Any]] = []
        self._seconds_before, self._begun = 0.0, math.nan  # seconds before a resume; start time of this part
        self._status: StatusFile | None = None
        self._newest: StepReport | None = None

    def _make_tally(self) -> Tally:
        return Tally(self.network.pattern)

    @property
    def length(self) -> int:
        """The length of the run as progress bars count it."""
        return self.steps

    @property
    def progress(self) -> int:
        """How much of that is done."""
        return self.simulation.t

    def _unfinished(self) -> bool:
        return self.simulation.t < self.steps

    @property
    def seconds(self) -> float:
        """The seconds of training so far, including those before a resume."""
        running = 0.0 if math.isnan(self._begun) else time.perf_counter() - self._begun
        return self._seconds_before + running

    def run(
        self,
        folder: RunFolder | None = None,
        on_step: OnStep | None = None,
        stop: Stop | None = None,
        *,
        first_row: bool = True,
    ) -> Trained:
        """Train to the end, until `stop` asks for it, or until a loss is not finite. Then summarise the run.

        `first_row=False` skips the evaluation before the first step.
        """
        with arithmetic(self.settings, plenty=self._plenty):
            return self._run(folder, on_step, stop, first_row=first_row)

    def _run(self, folder: RunFolder | None, on_step: OnStep | None, stop: Stop | None, *, first_row: bool) -> Trained:
        self._begun, status = time.perf_counter(), "finished"
        self._saves = SaveSchedule(self.settings.checkpoint_every, self.steps_per_epoch)
        steps = None if self.settings.seconds else self.steps  # a run of given simulated seconds ends at no step
        self._status = StatusFile(folder.path, steps=steps, steps_per_epoch=self.steps_per_epoch) if folder else None
        self._write_status()
        if first_row and not self.history:
            self._record(folder)
        self.evaluate.stop = stop  # set after the first row: the summary needs at least one
        try:
            self._record_missed_row(folder)
            while self._unfinished():
                if stop is not None and (reason := stop()):
                    raise TrainingStopped(reason)
                self._iterate(folder, on_step)
        except TrainingStopped as stopped:
            status = stopped.reason if isinstance(stopped.reason, str) else "interrupted"
        except NonFinite as error:
            status = str(error)
            self.evaluate.stop = None
            if self._evaluated_step != self.simulation.t:
                self._record(folder, last=True)
        self.evaluate.stop = None
        if not self.history:
            self._record(folder)
        if status != "finished":
            status = self._check_pending_losses() or status
        last_loss = torch.tensor(finite_or_nan(self.history[-1]["loss"]))
        if status == "finished" and not bool(torch.isfinite(last_loss).all()):
            status = str(NonFinite("test loss", last_loss, self.simulation.t))
        self._seconds_before, self._begun = self.seconds, math.nan
        result = Trained(
            self._summary(status, folder), self.history, self.simulation.x, folder.path if folder else None
        )
        if folder is not None:
            folder.save(self.state_dict())
            folder.write_summary(result.summary)
        self._write_status(status)
        return result

    def _write_status(self, status: str = RUNNING) -> None:
        """Write the progress of the run to status.json."""
        if self._status is None:
            return
        n, newest = self.network.num_agents, self._newest
        losses = self.simulation.watch.newest
        ages = (
            self.network.pattern.matrix(newest.ages, NOTHING).tolist()
            if newest is not None and n <= MOST_PAIRED
            else None
        )
        self._status.write(
            self.simulation.t,
            self.seconds,
            self._agents(losses),
            status=status,
            ages=None if ages is None else [[None if age < 0 else age for age in row] for row in ages],
            losses=None if losses is None else losses.tolist(),
            clock=self._clock_status(),
        )

    def _clock_status(self) -> dict[str, float | None]:
        """Return what status.json says of simulated time."""
        return {}

    def _agents(self, losses: Float[Tensor, " n"] | None) -> list[dict[str, Any]]:
        """Return the state of each agent. An agent with a non-finite loss is marked."""
        alive = {"state": ALIVE, "step": self.simulation.t}
        if losses is None or bool(torch.isfinite(losses).all()):
            return [alive] * self.network.num_agents
        return [{**alive, "nonfinite": not math.isfinite(loss)} for loss in losses.tolist()]

    def _iterate(self, folder: RunFolder | None, on_step: OnStep | None) -> None:
        """Take one step. Evaluate and save if it is time."""
        self._newest = self.simulation.step()
        self.tally.add(self._newest)
        t = self.simulation.t
        # Looked at whether saved or not: where a diverged run stops must not depend on the clock.
        if self._due() or t % self.steps_per_epoch == 0:
            self.simulation.watch.look()
        row = self._record(folder) if self._due() else None
        if self._saves.due(t):
            self._save(folder)
        if self._status is not None and self._status.due():
            self._write_status()
        if on_step is not None:
            on_step(t, row)

    def _save(self, folder: RunFolder | None) -> None:
        """Save a checkpoint, unless the run is over, which saves one anyway."""
        if folder is not None and self._unfinished():
            with self._saves.saving():
                folder.save(self.state_dict())

    def _record_missed_row(self, folder: RunFolder | None) -> None:
        """Evaluate now if the stop of the previous part interrupted the evaluation of this step."""
        if self._due() and self.simulation.t > 0 and self._evaluated_step != self.simulation.t:
            self._record(folder)

    @property
    def _evaluated_step(self) -> int | None:
        """The step of the newest row; None without rows."""
        return self.history[-1]["step"] if self.history else None

    def _check_pending_losses(self) -> str | None:
        """Check the losses that are not checked yet, so that a stop does not hide a diverged run. Return the error."""
        try:
            self.simulation.watch.look()
        except NonFinite as error:
            return str(error)
        return None

    def resume(self, folder: RunFolder) -> None:
        """Continue a run from its checkpoint, including messages in flight."""
        state = folder.load()
        try:
            self.simulation.load_state_dict(part_of(state, "simulation."))
            self.tally.load_state_dict(part_of(state, "tally."))
            rows = int(state["rows"])
            if bytes(state["settings"].tolist()) != self.settings.digest():
                raise ValueError("its settings differ")
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(
                f"checkpoint '{folder.checkpoint_path}' does not belong to this run's config.toml ({error}); train anew"
            ) from None
        self.history = folder.keep_rows(rows)
        # A killed run has no summary, or an old one.
        recorded = (folder.read_summary().get("seconds"), self.history[-1].get("seconds") if self.history else None)
        self._seconds_before = max(float(seconds or 0.0) for seconds in recorded)

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that the rest of the run depends on, and the hash of its settings."""
        digest = torch.tensor(list(self.settings.digest()), dtype=torch.uint8)
        simulation = {f"simulation.{name}": value for name, value in self.simulation.state_dict().items()}
        tally = {f"tally.{name}": value for name, value in self.tally.state_dict().items()}
        return {**simulation, **tally, "rows": torch.tensor(len(self.history)), "settings": digest}

    def _due(self) -> bool:
        every = self.settings.eval_every or self.steps_per_epoch
        return self.simulation.t % every == 0 or self.simulation.t == self.steps

    def _record(self, folder: RunFolder | None, *, last: bool = False) -> dict[str, Any]:
        """Evaluate now and add a row to the history. The last one of a run is on all test examples."""
        t = self.simulation.t
        row = {
            "step": t,
            "epoch": t / self.steps_per_epoch,
            "lr": self.plan.schedule.at(t),
            **self.evaluate(self.simulation.x, self._buffers, whole=last or not self._unfinished()),
            "train_loss": self.tally.train_loss("interval"),
            "predict": self.tally.predict("interval"),
            "message_age": self.tally.message_age("interval"),
            "bytes_sent": self._bytes_sent(),
            "ages": self.tally.ages(),
            **self._clock_row(),
            "seconds": round(self.seconds, 4),
        }
        self.tally.close_interval()
        self.history.append(row)
        if folder is not None:
            folder.append(row)
        return row

    def _bytes_sent(self) -> list[int]:
        """Return the bytes that each agent has sent so far."""
        return self.tally.bytes_sent()

    def _clock_row(self) -> dict[str, Any]:
        """Return what a row of metrics says of simulated time."""
        return {}

    @property
    def _buffers(self) -> dict[str, Tensor]:
        return self.simulation.statistics.buffers if self.simulation.statistics is not None else {}

    def _summary(self, status: str, folder: RunFolder | None) -> Summary:
        last, sent = self.history[-1], self._bytes_sent()
        predict = [share for share in self.tally.predict("run") or [] if share is not None]
        measured: MeasuredValues = {
            "iterations": self.simulation.t,
            "accuracy_per_agent": last["accuracy"],
            "accuracy_best": max(statistics.fmean(row["accuracy"]) for row in self.history),
            "accuracy_average_model": last["accuracy_average_model"],
            "loss_mean": statistics.fmean(finite_or_nan(last["loss"])),
            "consensus_distance": statistics.fmean(finite_or_nan(last["consensus"])),
            "predict_fraction": statistics.fmean(predict) if predict else None,
            "message_age": self.tally.message_age("run"),
            "evaluated_step": last["step"],
            "bytes_sent_per_agent": sent,
            "parameters": self.simulation.x.shape[1],
            "execution": self.settings.execution,
            "norm_stats": self.settings.norm_stats if self._buffers else None,
            "memory_estimate": self.memory.on_device,
            "memory_peak": peak_bytes(self.settings.device),
            "status": status,
            "seconds": self.seconds,
            "run_dir": str(folder.path) if folder else None,
        }
        return make_summary(self.plan, measured, self.history)
