"""Sums over the updates of agents that have steps of their own: since the last evaluation, and over the whole run."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gossamer.engine.timed.timed_simulation import UpdateReport
from gossamer.network import Links
from gossamer.run.metric_rows import MOST_PAIRED
from gossamer.shapes import Tensor

SUMS = ("loss", "losses", "predict", "choices", "age", "messages")


class TimedTally:
    """The sums of each agent, with the readings of the `Tally` of steps."""

    def __init__(self, links: Links) -> None:
        self._links, self._starts = links, links.starts.tolist()
        count = links.shape[0]
        self._sums = {f"{scope}.{name}": np.zeros(count) for scope in ("interval", "run") for name in SUMS}
        self._paired = count <= MOST_PAIRED
        self._of_links = {name: np.zeros(len(links) if self._paired else 0) for name in ("ages", "heard")}

    def add(self, report: UpdateReport) -> None:
        """Add an update."""
        agents = np.asarray(report.agents)
        if report.losses is not None:
            self._add("loss", agents, report.losses)
            self._add("losses", agents, np.ones(len(agents)))
        if report.predict is not None:
            predict = report.predict.double().cpu().numpy()
            self._add("predict", agents, np.nan_to_num(predict))
            self._add("choices", agents, ~np.isnan(predict))
        for agent, heard in zip(report.agents, report.heard, strict=True):
            self._add_ages(agent, heard.ages)

    def _add(self, name: str, agents: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> None:
        for scope in ("interval", "run"):
            self._sums[f"{scope}.{name}"][agents] += values

    def _add_ages(self, agent: int, ages: Sequence[int]) -> None:
        total, count, first = 0, 0, self._starts[agent]
        for place, age in enumerate(ages, first):
            if age >= 0:
                total, count = total + age, count + 1
                if self._paired:
                    self._of_links["ages"][place] += age
                    self._of_links["heard"][place] += 1
        for scope in ("interval", "run"):
            self._sums[f"{scope}.age"][agent] += total
            self._sums[f"{scope}.messages"][agent] += count

    def close_interval(self) -> None:
        """Begin a new interval."""
        for name, total in [*self._sums.items(), *((f"interval.{n}", t) for n, t in self._of_links.items())]:
            if name.startswith("interval."):
                total[:] = 0

    def train_loss(self, scope: str) -> list[float | None] | None:
        """Mean training loss of each agent; None before its first update."""
        losses = self._sums[f"{scope}.losses"]
        if not losses.any():
            return None
        total = self._sums[f"{scope}.loss"]
        return [float(value / count) if count else None for value, count in zip(total, losses, strict=True)]

    def predict(self, scope: str) -> list[float | None] | None:
        """Fraction of each agent's updates that predict, among those with a choice; None if none had one."""
        choices = self._sums[f"{scope}.choices"]
        if not choices.any():
            return None
        total = self._sums[f"{scope}.predict"]
        return [float(value / count) if count else None for value, count in zip(total, choices, strict=True)]

    def message_age(self, scope: str) -> float | None:
        """Mean age of the messages that agents held, in their own steps."""
        messages = self._sums[f"{scope}.messages"].sum()
        return float(self._sums[f"{scope}.age"].sum() / messages) if messages else None

    def ages(self) -> list[list[float | None]] | None:
        """Mean age in this interval of what agent i held of agent j; None without, or with very many agents."""
        if not self._paired:
            return None
        heard = self._of_links["heard"]
        means = np.divide(self._of_links["ages"], heard, out=np.full(len(heard), np.nan), where=heard > 0)
        rows = self._links.matrix(torch.from_numpy(means.round(3)), math.nan).tolist()
        return [[None if math.isnan(age) else age for age in row] for row in rows]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the sums."""
        held = {**self._sums, **{f"links.{name}": total for name, total in self._of_links.items()}}
        return {name: torch.from_numpy(total.copy()) for name, total in held.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        for name, total in self._sums.items():
            total[:] = state[name].numpy()
        for name, total in self._of_links.items():
            total[:] = state[f"links.{name}"].numpy()
