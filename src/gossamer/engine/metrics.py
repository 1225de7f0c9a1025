"""What is measured: at an evaluation, and step by step in between."""

from typing import Any

import torch

from gossamer.engine.simulation import StepReport
from gossamer.nn import FlatModule
from gossamer.shapes import Float, Tensor
from gossamer.tasks import Task

EVALUATION_BATCH = 2048


class Evaluator:
    """Test accuracy and loss of every agent and of the averaged model, and how far apart the agents are."""

    def __init__(self, task: Task, module: FlatModule, device: str) -> None:
        self.test = task.test.to(device)
        self._task = task
        self._outputs = torch.func.vmap(module, in_dims=(0, None), randomness="different")

    def __call__(self, x: Float[Tensor, "n d"]) -> dict[str, Any]:
        """Return the measurements of a state as plain values."""
        mean = x.mean(dim=0, keepdim=True)
        accuracy, loss = self._accuracy_and_loss(torch.cat([x, mean]))
        return {
            "accuracy": accuracy[:-1],
            "loss": loss[:-1],
            "accuracy_average_model": accuracy[-1],
            "loss_average_model": loss[-1],
            "consensus": torch.linalg.vector_norm(x - mean, dim=1).tolist(),
        }

    @torch.no_grad()
    def _accuracy_and_loss(self, x: Float[Tensor, "m d"]) -> tuple[list[float], list[float]]:
        right, loss = torch.zeros(len(x), dtype=torch.int64), torch.zeros(len(x), dtype=torch.float64)
        for inputs, labels in zip(
            self.test.x.split(EVALUATION_BATCH), self.test.y.split(EVALUATION_BATCH), strict=True
        ):
            outputs = self._outputs(x, inputs.to(x.dtype) if inputs.is_floating_point() else inputs)
            # An output that is not a number is never right, whatever argmax makes of it.
            correct = (outputs.argmax(dim=-1) == labels) & torch.isfinite(outputs).all(dim=-1)
            right += correct.sum(dim=1).cpu()
            losses = torch.stack([self._task.loss(output, labels) for output in outputs])
            loss += losses.double().cpu() * len(labels)
        total = len(self.test)
        return (right / total).tolist(), (loss / total).tolist()


class Tally:
    """Sums over steps: training loss, predict share and message age since the last evaluation and in all."""

    def __init__(self, num_agents: int) -> None:
        zeros = torch.zeros(num_agents, dtype=torch.float64)
        self._sums = {
            name: zeros.clone()
            for scope in ("interval", "run")
            for name in (f"{scope}.{what}" for what in ("loss", "predict", "choices", "age", "messages", "sent"))
        }
        self._steps = {"interval": 0, "run": 0}

    def add(self, report: StepReport) -> None:
        """Count one step."""
        heard = report.ages >= 0
        values = {"age": (report.ages * heard).sum(dim=1), "messages": heard.sum(dim=1), "sent": report.sent}
        if report.loss is not None:
            values["loss"] = report.loss.detach().cpu()
        if report.predict is not None:
            predict = report.predict.detach().cpu()
            values |= {"predict": predict.nan_to_num(), "choices": ~predict.isnan()}
        for scope in ("interval", "run"):
            self._steps[scope] += 1
            for name, value in values.items():
                self._sums[f"{scope}.{name}"] += value.double()

    def close_interval(self) -> None:
        """Begin a new interval."""
        self._steps["interval"] = 0
        for name, total in self._sums.items():
            if name.startswith("interval."):
                total.zero_()

    def train_loss(self, scope: str) -> list[float] | None:
        """Mean training loss of each agent, or None before the first step."""
        steps = self._steps[scope]
        return (self._sums[f"{scope}.loss"] / steps).tolist() if steps else None

    def predict(self, scope: str) -> list[float | None] | None:
        """Share of predicting in each agent's steps with a choice; None where there was none."""
        choices = self._sums[f"{scope}.choices"]
        if not choices.any():
            return None
        share = self._sums[f"{scope}.predict"] / choices.clamp(min=1)
        return [float(s) if c > 0 else None for s, c in zip(share, choices, strict=True)]

    def messages_sent(self) -> list[int]:
        """Messages that each agent has sent so far."""
        return [int(count) for count in self._sums["run.sent"]]

    def message_age(self, scope: str) -> float | None:
        """Mean age of the messages that agents held, current ones counted as 0."""
        messages = float(self._sums[f"{scope}.messages"].sum())
        return float(self._sums[f"{scope}.age"].sum()) / messages if messages else None

    def state_dict(self) -> dict[str, Tensor]:
        """Return the sums."""
        return {**self._sums, "steps": torch.tensor([self._steps["interval"], self._steps["run"]])}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        for name, total in self._sums.items():
            total.copy_(state[name])
        self._steps = {"interval": int(state["steps"][0]), "run": int(state["steps"][1])}
