"""A training run on a testbed: `Training`, with a clock of simulated seconds."""

import math
from typing import Any, cast

from gossamer.engine.timed.spells import SPELLS_FILE, write_spells
from gossamer.engine.timed.tally import TimedTally
from gossamer.engine.timed.timed_simulation import TimedSimulation
from gossamer.engine.timed.timetable import State
from gossamer.engine.training import OnStep, Training
from gossamer.run.folder import RunFolder
from gossamer.run.plan import Plan
from gossamer.run.status import ALIVE, DOWN
from gossamer.run.summary import Summary

EVALUATIONS = 50  # of a run of given length in seconds


class TimedTraining(Training):
    """A run on a testbed. Its steps are the mean number of updates of the agents; it ends by time, or by epochs."""

    simulation: TimedSimulation  # type: ignore[assignment]
    tally: TimedTally  # type: ignore[assignment]

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        settings = self.settings
        self.notes["testbed"] = f"{settings.testbed}, an iteration of compute time 1 takes {settings.step_seconds:g} s"
        self._end = settings.seconds or math.inf
        self._every_seconds = settings.eval_seconds
        if settings.seconds and not settings.eval_every and not settings.eval_seconds:
            self._every_seconds = settings.seconds / EVALUATIONS
        self._over = False

    def _make_tally(self) -> TimedTally:  # type: ignore[override]
        return TimedTally(self.network.pattern)

    @property
    def length(self) -> int:
        """The length of the run as progress bars count it: in simulated seconds, or in steps."""
        return math.ceil(self.settings.seconds) if self.settings.seconds else self.steps

    @property
    def progress(self) -> int:
        """How much of that is done."""
        if self.settings.seconds:
            return self.length if self._over else int(self.simulation.now)
        return self.simulation.t

    def _unfinished(self) -> bool:
        by_time = bool(self.settings.seconds)
        return not self._over and (self.simulation.now < self._end if by_time else self.simulation.t < self.steps)

    def _iterate(self, folder: RunFolder | None, on_step: OnStep | None) -> None:
        """Go to the next moment, or to the next evaluation if that is earlier."""
        simulation, before, progress = self.simulation, self.simulation.t, self.progress
        limit = min(self._end, self._next_evaluation())
        reports = simulation.advance(limit)
        for report in reports or []:
            self.tally.add(report)
        if reports is None and math.isfinite(limit):
            simulation.go_to(limit)
        elif reports is None:
            self._over = True  # nothing will ever happen again: all agents are gone
        due = reports is None or self._crosses(before, simulation.t) or not self._unfinished()
        row = self._record(folder) if due else None
        epochs = simulation.t // self.steps_per_epoch
        if epochs > before // self.steps_per_epoch and self._saves.due(epochs * self.steps_per_epoch):
            self._save(folder)
        if self._status is not None and self._status.due():
            self._write_status()
        if on_step is not None and (row is not None or self.progress != progress):
            on_step(self.progress, row)

    def _crosses(self, before: int, now: int) -> bool:
        """Say whether an evaluation by steps is due after a moment."""
        every = self.settings.eval_every or self.steps_per_epoch
        return not self._every_seconds and now // every > before // every

    def _next_evaluation(self) -> float:
        """Return the simulated time of the next evaluation; infinity if steps decide."""
        if not self._every_seconds:
            return math.inf
        return self._every_seconds * (1 + len([row for row in self.history if row["sim_seconds"] > 0]))

    def _record_missed_row(self, folder: RunFolder | None) -> None:
        """Evaluate now if the stop of the previous part interrupted an evaluation by steps."""
        if self.history and self._crosses(self.history[-1]["step"], self.simulation.t):
            self._record(folder)

    def _bytes_sent(self) -> list[int]:
        return list(self.simulation.table.links.sent)

    def _agents(self, losses: Any) -> list[dict[str, Any]]:
        states = (DOWN if state is State.DOWN else ALIVE for state in self.simulation.table.state)
        return [{"state": state, "step": k} for state, k in zip(states, self.simulation.table.done, strict=True)]

    def _clock_status(self) -> dict[str, float | None]:
        return {"sim_seconds": self.simulation.now, "sim_end": self.settings.seconds or None}

    def _clock_row(self) -> dict[str, Any]:
        table = self.simulation.table
        return {
            "sim_seconds": self.simulation.now,
            "iterations": list(table.done),
            "computing": table.seconds_spent(State.COMPUTING),
            "waiting": table.seconds_spent(State.WAITING, State.RETURNING),
            "down": table.seconds_spent(State.DOWN),
        }

    def _summary(self, status: str, folder: RunFolder | None) -> Summary:
        table, now = self.simulation.table, self.simulation.now
        goodput = [seconds / now if now else 1.0 for seconds in table.seconds_spent(State.COMPUTING)]
        if folder is not None:
            write_spells(folder.path / SPELLS_FILE, table)
        timed = {
            **super()._summary(status, folder),
            "testbed": self.settings.testbed,
            "sim_seconds": now,
            "iterations_per_agent": list(table.done),
            "gradients_per_agent": [k + 1 for k in table.published],
            "waiting_seconds_per_agent": table.seconds_spent(State.WAITING, State.RETURNING),
            "down_seconds_per_agent": table.seconds_spent(State.DOWN),
            "goodput": sum(goodput) / len(goodput),
            "goodput_per_agent": goodput,
        }
        return cast(Summary, timed)
