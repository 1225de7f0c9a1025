"""One agent of `gossamer train --engine processes`: the simulator's task in an ordinary training loop.

Started by the launcher as `python -m gossamer.train.processes.worker FOLDER`.
"""

import dataclasses
import itertools
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import gossamer as gm
from gossamer.data import Examples
from gossamer.data.device_batches import DeviceBatches, Draw
from gossamer.errors import StabilityWarning
from gossamer.run.agent_folder import AgentFolder
from gossamer.run.folder import RunFolder
from gossamer.run.machine import arithmetic
from gossamer.run.plan import batches_of, make_plan
from gossamer.run.save_schedule import SaveSchedule
from gossamer.runtime.environment import read_environment
from gossamer.seeding import drawing_from
from gossamer.shapes import Tensor
from gossamer.state.checkpoint import part_of
from gossamer.tasks import Task, correct

INTERRUPTED = "interrupted"
EVALUATION_BATCH = 2048  # test examples at a time


class Worker:
    """One agent's model, data and optimiser."""

    def __init__(self, path: Path) -> None:
        _, settings = RunFolder.open(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StabilityWarning)  # the launcher has shown it
            made = make_plan(settings)
            self.plan, self.task = made, made.task
            self.settings = settings = made.settings
            self.agent = gm.Agent(read_environment(), made.network)
            rank, dtype = self.agent.rank, getattr(torch, settings.dtype)
            flat = self.task.fresh_module(settings.seed)
            self.module = flat.module.to(device=settings.device, dtype=dtype)
            first = self.task.initial(settings.init, made.network.num_agents, settings.seed)[rank]
            torch.nn.utils.vector_to_parameters(first.to(device=settings.device, dtype=dtype), self.module.parameters())
            self.optimizer = gm.optim.Decentralized(
                self.module.parameters(),
                lr=settings.lr,
                momentum=settings.momentum,
                nesterov=settings.nesterov,
                weight_decay=settings.weight_decay,
                algorithm=made.algorithm,
                agent=self.agent,
                share=float(made.share[rank]),
                # In lock step a restarted agent continues at the others' iteration: an older one would block.
                rejoin=self.agent.run.lockstep
                or made.algorithm.waits
                or not AgentFolder(path, rank).checkpoints.exist(),
            )
        self.folder = AgentFolder(path, rank)
        self._sampled = self._with_fewer_test_examples()
        self._batches, self._fresh = self._batches_for("batches"), self._batches_for("fresh-batches")
        self._stopped = False
        self._sums: dict[str, float] = {}
        self._sent, self._begun = 0, time.monotonic()
        # Of earlier parts of the run, as far as this agent recorded them.
        self._seconds_before = max((row.get("seconds") or 0.0 for row in self.folder.rows().values()), default=0.0)
        if self.folder.checkpoints.exist() and not self.optimizer.adopted:
            self._resume()

    def _batches_for(self, purpose: str) -> DeviceBatches:
        dtype = getattr(torch, self.settings.dtype)
        return batches_of(self.settings, self.task, self.plan.shards, purpose, dtype)

    def _with_fewer_test_examples(self) -> Task:
        """Return the task for evaluations before the last one."""
        count, task = self.settings.eval_examples, self.task
        if not count:
            return task
        sample = task.test_sample(count, self.settings.seed)
        return dataclasses.replace(task, test=Examples(task.test.x[sample], task.test.y[sample]))

    def run(self) -> str:
        """Train to the end, until a signal, or until the loss is not finite; return how it ended."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        per_epoch, steps = self.plan.steps_per_epoch, self.plan.steps
        every, saves = self.settings.eval_every or per_epoch, SaveSchedule(self.settings.checkpoint_every, per_epoch)
        if self.optimizer.steps_done == 0:
            self._record()
        while self.optimizer.steps_done < steps and not self._stopped:
            loss = self._step()
            t = self.optimizer.steps_done
            if not torch.isfinite(torch.tensor(loss)):
                return f"the loss of agent {self.agent.rank} is {loss} at step {t - 1}; use a smaller --lr"
            if t % every == 0 or t == steps:
                self._record()
            if t < steps and saves.due(t):
                with saves.saving():
                    self.folder.checkpoints.save(self.state_dict())
        self.folder.checkpoints.save(self.state_dict())
        return INTERRUPTED if self.optimizer.steps_done < steps else "finished"

    def _stop(self, *_: object) -> None:
        self._stopped = True
        self.optimizer.node.hurry()

    def _step(self) -> float:
        """Take one step, and add it to the metrics."""
        t = self.optimizer.steps_done
        for group in self.optimizer.param_groups:
            group["lr"] = self.plan.schedule.at(t)
        loss = float(self.optimizer.step(self._on_batch(t), fresh=lambda: self._apart(self._fresh, t)))
        done = self.optimizer.last
        assert done is not None
        heard = {peer: age for peer, age in done.ages.items() if age >= 0}
        values = {"loss": loss, "steps": 1, "age": sum(heard.values()), "messages": len(heard)}
        if done.predict is not None:
            values |= {"predict": done.predict, "choices": 1}
        for name, value in values.items():
            for scope in ("interval", "run"):
                self._add(f"{scope}.{name}", value)
        for peer, age in heard.items():
            self._add(f"interval.age.{peer}", age)
            self._add(f"interval.messages.{peer}", 1)
        self._sent += done.sent
        return loss

    def _add(self, name: str, value: float) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + value

    def _evaluate(self, batches: DeviceBatches, t: int) -> Tensor:
        """Return the loss on this agent's batch of a step; gradients stay in the parameters."""
        rank, draw = slice(self.agent.rank, self.agent.rank + 1), batches.draw(t)
        inputs, targets = batches.load(Draw(draw.indices[rank], None if draw.crops is None else draw.crops[rank]))
        self.module.train()
        self.module.zero_grad()
        with drawing_from(inputs.device, self.settings.seed, f"dropout-{self.agent.rank}", t):
            loss = self.task.loss(self.module(inputs[0]), targets[0])
            loss.backward()
        return loss.detach()

    def _on_batch(self, t: int) -> Callable[[], Tensor]:
        """Return the closure of a step; only its first call changes the running statistics."""
        calls = itertools.count()
        return lambda: self._evaluate(self._batches, t) if next(calls) == 0 else self._apart(self._batches, t)

    def _apart(self, batches: DeviceBatches, t: int) -> Tensor:
        """Evaluate without a change of the running statistics."""
        before = [buffer.clone() for buffer in self.module.buffers()]
        loss = self._evaluate(batches, t)
        for buffer, value in zip(self.module.buffers(), before, strict=True):
            buffer.copy_(value)
        return loss

    def _record(self) -> None:
        """Evaluate now and add a row to this agent's metrics."""
        t = self.optimizer.steps_done
        accuracy, loss = evaluate(self.module, self.task if t == self.plan.steps else self._sampled)
        self.folder.append(
            {
                "step": t,
                "epoch": t / self.plan.steps_per_epoch,
                "lr": self.plan.schedule.at(t),
                "accuracy": accuracy,
                "loss": loss,
                "train_loss": self._mean("interval.loss", "interval.steps"),
                "predict": self._mean("interval.predict", "interval.choices"),
                "message_age": self._mean("interval.age", "interval.messages"),
                "predict_run": self._mean("run.predict", "run.choices"),
                "age_sum": self._sums.get("run.age", 0.0),
                "messages": self._sums.get("run.messages", 0.0),
                "bytes_sent": self._sent,
                "ages": {
                    str(peer): self._mean(f"interval.age.{peer}", f"interval.messages.{peer}")
                    for peer in self.agent.neighbours
                },
                "seconds": self._seconds_before + time.monotonic() - self._begun,
            }
        )
        self.agent.report(accuracy=accuracy)
        self._sums = {name: value for name, value in self._sums.items() if name.startswith("run.")}

    def _mean(self, total: str, count: str) -> float | None:
        return self._sums[total] / self._sums[count] if self._sums.get(count) else None

    def state_dict(self) -> dict[str, Tensor]:
        """Return what this agent needs to continue."""
        model = {f"model.{name}": value for name, value in self.module.state_dict().items()}
        kept = self.optimizer.state_dict()
        memory = {f"memory.{place}": entry["momentum_buffer"] for place, entry in kept["state"].items() if entry}
        node = {f"node.{name}": value for name, value in self.optimizer.node.state_dict().items()}
        sums = {f"sums.{name}": torch.tensor(value, dtype=torch.float64) for name, value in self._sums.items()}
        return {**model, **memory, **node, **sums, "sent": torch.tensor(self._sent)}

    def _resume(self) -> None:
        state = self.folder.checkpoints.load()
        self.module.load_state_dict(part_of(state, "model."))
        parameters = list(itertools.chain.from_iterable(group["params"] for group in self.optimizer.param_groups))
        for place, memory in part_of(state, "memory.").items():
            parameter = parameters[int(place)]
            self.optimizer.state[parameter]["momentum_buffer"] = memory.to(parameter)
        self.optimizer.node.load_state_dict(part_of(state, "node."))
        self._sums = {name: float(value) for name, value in part_of(state, "sums.").items()}
        self._sent = int(state["sent"])


@torch.no_grad()
def evaluate(module: nn.Module, task: Task) -> tuple[float, float]:
    """Return a model's accuracy and mean loss on the test data."""
    like = next(module.parameters())
    test = task.test.to(str(like.device))
    right = loss = 0.0
    was_training = module.training
    module.eval()
    for indices in torch.arange(len(test), device=like.device).split(EVALUATION_BATCH):
        outputs, targets = module(task.inputs(test.x[indices], like.dtype)), test.y[indices]
        right += float(correct(outputs, targets).sum())
        loss += float(task.loss(outputs, targets)) * len(indices)
    module.train(was_training)
    return right / test.y.numel(), loss / len(test)


def main(path: Path) -> None:
    """Run one agent and write how it ended."""
    worker = Worker(path)
    with arithmetic(worker.settings), worker.agent:
        worker.folder.end(worker.run())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
