"""Measurements: evaluations on test data, and sums over the steps between them."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from gossamer.data.device_batches import DeviceBatches, Draw, rows_of
from gossamer.engine.cuda_graph import Recorded
from gossamer.engine.execution import Execution
from gossamer.engine.simulation import StepReport
from gossamer.network import Links
from gossamer.run.metric_rows import MOST_PAIRED
from gossamer.seeding import drawing_from
from gossamer.shapes import Float, Int, Tensor
from gossamer.tasks import correct

EVALUATION_EXAMPLES = 8192  # at once, over all agents: kernels index an agent's numbers with 32 bits
LARGE_BATCH, LARGEST_OUTPUTS = 1024, 2**24  # of linear layers on a CPU: examples, and numbers of a layer
CALIBRATION_BATCHES = 8


class TrainingStopped(Exception):
    """The run must stop now. `reason` is what the stop callback returned."""

    def __init__(self, reason: str | bool) -> None:
        super().__init__(reason)
        self.reason = reason


class Evaluator:
    """Test accuracy and loss of every agent and of the averaged model, and how far apart the agents are.

    The execution has one agent more than the run: the last one is the averaged model. With calibration batches,
    BatchNorm statistics are recomputed on a few training batches; the averaged model gets examples of all agents.
    A `sample`, the indices of some test examples, replaces the others except where all are asked for.
    """

    def __init__(
        self, execution: Execution, calibration: DeviceBatches | None = None, sample: Int[Tensor, " m"] | None = None
    ) -> None:
        self.execution, self.calibration = execution, calibration
        setup = execution.setup
        self._task, self.test = setup.task, setup.task.test.to(setup.device)
        self._all = torch.arange(len(self.test), device=setup.device)
        self._sample = self._all if sample is None else sample.to(setup.device)
        self._batch = min(len(self.test), evaluation_batch(execution))
        self._recorded = Recorded(self._measure, [execution.parameters, torch.zeros_like(self._all[: self._batch])])
        self.stop: Callable[[], str | bool | None] | None = None  # called between batches

    def __call__(self, x: Float[Tensor, "n d"], buffers: dict[str, Tensor], *, whole: bool = True) -> dict[str, Any]:
        """Return the measurements of a state as plain values: on all test examples, or on the sample."""
        states, mean = self.execution.parameters, x.mean(dim=0, keepdim=True)
        states[:-1].copy_(x)
        states[-1:].copy_(mean)
        if self.calibration is None:
            self._adopt(buffers)
        else:
            self._calibrate(self.calibration)
        accuracy, loss = self._accuracy_and_loss(self._all if whole else self._sample)
        return {
            "accuracy": accuracy[:-1],
            "loss": loss[:-1],
            "accuracy_average_model": accuracy[-1],
            "loss_average_model": loss[-1],
            "consensus": torch.linalg.vector_norm(x - mean, dim=1).tolist(),
        }

    def _accuracy_and_loss(self, chosen: Int[Tensor, " m"]) -> tuple[list[float], list[float]]:
        parameters = self.execution.parameters
        right = torch.zeros(len(parameters), dtype=torch.float64, device=parameters.device)
        loss = torch.zeros_like(right)
        for indices in chosen.split(self._batch):
            if self.stop is not None and (reason := self.stop()):
                raise TrainingStopped(reason)
            whole = len(indices) == self._batch  # a smaller last batch does not fit the recording
            run = self._recorded if whole else self._measure
            batch_right, batch_loss = run(parameters, indices)
            right, loss = right + batch_right, loss + batch_loss.double() * len(indices)
        return (right / self.test.y[chosen].numel()).tolist(), (loss / len(chosen)).tolist()

    @torch.no_grad()
    def _measure(self, x: Float[Tensor, "m d"], indices: Int[Tensor, " b"]) -> tuple[Tensor, Tensor]:
        """Return the number of correct answers and the loss of each agent on some test examples."""
        execution, dtype = self.execution, self.execution.setup.working_dtype
        inputs, targets = self._task.inputs(rows_of(self.test.x, indices), dtype), self.test.y[indices]
        outputs = execution.outputs(x, inputs.expand(len(x), *inputs.shape))
        losses = torch.stack([self._task.loss(output, targets) for output in outputs])
        return correct(outputs, targets).flatten(1).sum(dim=1), losses

    def _adopt(self, buffers: dict[str, Tensor]) -> None:
        """Copy the agents' statistics, and their mean for the averaged model."""
        for name, mine in self.execution.buffers.items():
            theirs = buffers[name]
            mine[:-1].copy_(theirs)
            mine[-1].copy_(theirs.double().mean(dim=0) if theirs.is_floating_point() else theirs[0])

    def _calibrate(self, batches: DeviceBatches) -> None:
        norms = [layer for layer in self.execution.running.modules() if isinstance(layer, BatchNorm)]
        for step in range(CALIBRATION_BATCHES):
            for layer in norms:
                layer.momentum = 1 / (step + 1)  # a plain mean: all batches count the same, older statistics not at all
            inputs, _ = batches.load(Draw(batches.draw(step).indices))
            n, batch = inputs.shape[:2]
            across = inputs.flatten(0, 1)[::n][:batch]
            parameters = self.execution.parameters
            with drawing_from(parameters.device, batches.seed, "calibration-dropout", step):
                self.execution.outputs(parameters, torch.cat([inputs, across[None]]), training=True)


def evaluation_batch(execution: Execution) -> int:
    """Return how many examples to evaluate at once. Linear layers on a CPU are faster with more of them."""
    setup = execution.setup
    usual = max(1, EVALUATION_EXAMPLES // setup.num_agents)
    layers = [layer for layer in setup.module.module.modules() if layer._parameters]
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    if setup.device != "cpu" or len(linear) < len(layers):
        return usual
    widest = max(layer.out_features for layer in linear)
    return max(usual, min(LARGE_BATCH, LARGEST_OUTPUTS // (setup.num_agents * widest)))


class Tally:
    """Sums of training loss, predict share and message age: since the last evaluation, and over the whole run."""

    def __init__(self, links: Links) -> None:
        self._links = links
        zeros = torch.zeros(links.shape[0], dtype=torch.float64)
        self._sums = {
            name: zeros.clone()
            for scope in ("interval", "run")
            for name in (f"{scope}.{what}" for what in ("loss", "predict", "choices", "age", "messages", "sent"))
        }
        self._of_links = ("interval.ages", "interval.heard") if links.shape[0] <= MOST_PAIRED else ()
        self._sums |= {name: torch.zeros(len(links), dtype=torch.int64) for name in self._of_links}
        self._steps = {"interval": 0, "run": 0}

    def add(self, report: StepReport) -> None:
        """Add one step to the sums."""
        heard = report.ages >= 0
        aged = report.ages * heard
        for name, of_links in zip(self._of_links, (aged, heard), strict=False):
            self._sums[name] += of_links  # ages are always on the CPU
        values = {"age": self._links.row_sums(aged), "messages": self._links.row_sums(heard), "sent": report.sent}
        if report.loss is not None:
            values["loss"] = report.loss
        if report.predict is not None:
            predict = report.predict
            values |= {"predict": predict.nan_to_num(), "choices": ~predict.isnan()}
        for scope in ("interval", "run"):
            self._steps[scope] += 1
            for name, value in values.items():
                total = f"{scope}.{name}"
                # Move the sum to the device of its values, once: copying values to the CPU would block a GPU each step.
                self._sums[total] = self._sums[total].to(value.device) + value

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
        """Fraction of each agent's steps that predict, among those with a choice; None if no step had one."""
        choices = self._sums[f"{scope}.choices"]
        if not choices.any():
            return None
        share = self._sums[f"{scope}.predict"] / choices.clamp(min=1)
        return [float(s) if c > 0 else None for s, c in zip(share, choices, strict=True)]

    def bytes_sent(self) -> list[int]:
        """The bytes that each agent has sent so far."""
        return [int(count) for count in self._sums["run.sent"]]

    def message_age(self, scope: str) -> float | None:
        """Mean age of the messages that agents held. Current messages count as 0."""
        messages = float(self._sums[f"{scope}.messages"].sum())
        return float(self._sums[f"{scope}.age"].sum()) / messages if messages else None

    def ages(self) -> list[list[float | None]] | None:
        """Mean age in this interval of the messages that agent i held of agent j; None if there was no message.

        With more than MOST_PAIRED agents the result is None.
        """
        if not self._of_links:
            return None
        ages, heard = (self._sums[name] for name in self._of_links)
        means = (ages.double() / heard).round(decimals=3)  # NaN without a message
        rows = self._links.matrix(means, math.nan).tolist()
        return [[None if math.isnan(age) else age for age in row] for row in rows]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the sums."""
        return {**self._sums, "steps": torch.tensor([self._steps["interval"], self._steps["run"]])}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        for name, total in self._sums.items():
            if name in self._of_links:  # older checkpoints have a matrix, or nothing
                total.copy_(self._links.listed(state.get(name, torch.zeros_like(total)), total))
            else:
                total.copy_(state[name])
        self._steps = {"interval": int(state["steps"][0]), "run": int(state["steps"][1])}
