"""N agents on one virtual clock. Training runs and trajectories use the same loop."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from gossamer.algorithms import Algorithm, Noise, Own, Place, Update
from gossamer.engine.mailbox import Mailbox
from gossamer.engine.norm_statistics import Statistics
from gossamer.errors import UserError
from gossamer.fused import make_recorder, real
from gossamer.network import Network
from gossamer.seeding import generator
from gossamer.shapes import Bool, Float, Int, Tensor
from gossamer.state.checkpoint import part_of
from gossamer.state.local import LocalOptimizer


@runtime_checkable
class Offering(Protocol):
    """A source of gradients that says what else it can evaluate."""

    @property
    def offers(self) -> frozenset[str]:
        """The evaluations that it supports: of loss, gradient and fresh_gradient."""


@runtime_checkable
class Source(Offering, Protocol):
    """Computes the gradients of all agents at once, as a function of the point and the step only."""

    def gradient(self, x: Float[Tensor, "n d"], step: int) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"] | None]:
        """Return each agent's gradient on its batch of this step, and its loss if known."""

    def gradient_elsewhere(self, x: Float[Tensor, "n d"], step: int) -> Float[Tensor, "n d"]:
        """Return each agent's gradient on the same batch at another point, without side effects."""

    def loss(self, x: Float[Tensor, "n d"], step: int) -> Float[Tensor, " n"]:
        """Return each agent's loss on the same batch."""

    def fresh_gradient(self, x: Float[Tensor, "n d"], step: int) -> Float[Tensor, "n d"]:
        """Return each agent's gradient on another batch."""


@dataclass(frozen=True)
class AtStep:
    """A source bound to one step: an `algorithms.base.Evaluate`."""

    source: Source
    step: int

    def loss(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Return each agent's loss at x."""
        return self.source.loss(real(x), self.step)

    def gradient(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Return each agent's gradient at x."""
        return self.source.gradient_elsewhere(real(x), self.step)

    def fresh_gradient(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Return each agent's gradient at x on another batch."""
        return self.source.fresh_gradient(real(x), self.step)


@dataclass(frozen=True)
class StepReport:
    """The measurements of one step."""

    loss: Float[Tensor, " n"] | None
    predict: Float[Tensor, " n"] | None
    ages: Int[Tensor, " e"]  # of the newest message on each link of the network's pattern
    sent: Int[Tensor, " n"]  # bytes that each agent sends


class NonFinite(ArithmeticError):
    """The loss or the parameters of an agent are no longer finite."""

    def __init__(self, what: str, values: Float[Tensor, " n"], step: int) -> None:
        agent = int((~torch.isfinite(values)).nonzero()[0])
        super().__init__(
            f"the {what} of agent {agent} is {float(values[agent])} at step {step}; the run was stopped there, "
            "use a smaller --lr or an algorithm that is stable at this delay"
        )


class Watch:
    """Checks losses for non-finite values: at once on a CPU, with a delay on a GPU.

    Reading the newest loss of a GPU waits for it. So losses are copied to the host EVERY steps at a time, and checked
    when the next copy starts: by then the previous one is complete.
    """

    EVERY = 32

    def __init__(self) -> None:
        self.newest: Tensor | None = None  # the last checked losses; on the host
        self._pending: list[tuple[int, Tensor]] = []
        self._copying: list[tuple[int, Tensor]] = []

    def add(self, step: int, loss: Float[Tensor, " n"]) -> None:
        """Add the losses of a step, and check them if that does not block."""
        self._pending.append((step, loss.clone() if loss.is_cuda else loss))
        if not loss.is_cuda:
            self.look()
        elif len(self._pending) == self.EVERY:
            self._check(self._copying)
            steps, losses = zip(*self._pending, strict=True)
            host = torch.empty((len(losses), len(loss)), dtype=loss.dtype, pin_memory=True)
            self._copying = list(zip(steps, host.copy_(torch.stack(losses), non_blocking=True), strict=True))
            self._pending = []

    def look(self) -> None:
        """Check all losses up to the newest; raise NonFinite for the first step with a non-finite one."""
        if any(loss.is_cuda for _, loss in self._pending):
            torch.cuda.synchronize()
        seen, self._copying, self._pending = [*self._copying, *self._pending], [], []
        self._check([(step, loss.cpu()) for step, loss in seen])

    def _check(self, seen: list[tuple[int, Tensor]]) -> None:
        if seen:
            self.newest = seen[-1][1]
        if not seen or bool(torch.isfinite(torch.stack([loss for _, loss in seen])).all()):
            return
        for step, loss in seen:
            if not bool(torch.isfinite(loss).all()):
                raise NonFinite("loss", loss, step)


class Simulation:
    """The state of all agents, and `step`, which advances it by one iteration."""

    def __init__(
        self,
        algorithm: Algorithm,
        network: Network,
        source: Source,
        x0: Float[Tensor, "n d"],
        *,
        lr: Callable[[int], float],
        local: LocalOptimizer | None = None,
        segments: tuple[int, ...] | None = None,
        seed: int = 0,
        history: str = "state",
        statistics: Statistics | None = None,
        share: Float[Tensor, " n"] | None = None,
        fused: bool = True,
    ) -> None:
        self.algorithm, self.source, self.lr, self.seed = algorithm, source, lr, seed
        self.local = local or LocalOptimizer()
        self.segments = segments or (x0.shape[1],)
        algorithm.check_local(plain=self.local.plain)
        check_offers(algorithm, source)
        check_schedule(algorithm, network)
        self.x = x0.clone()
        self.memory: Tensor | None = None
        self.t = 0
        self.watch = Watch()
        self.statistics = statistics
        share = torch.ones(len(x0)) if share is None else share
        self.place = Place(network, torch.arange(len(x0), device=x0.device), share.to(x0))
        self.state = algorithm.start(self.x, self.place)
        self.recorder = make_recorder(self.x) if fused else None
        self._defer = self.recorder.defer if self.recorder is not None else lambda rows: rows
        self.mailbox = Mailbox(
            algorithm, network, self.x, seed, plain=self.local.plain, history=history, defer=self._defer
        )
        if statistics is not None:
            statistics.join(self.mailbox)

    def step(self) -> StepReport:
        """Advance every agent by one iteration: gradient, messages, rule."""
        t, x = self.t, self.x
        g, loss = self.source.gradient(x, t)
        if loss is not None:
            self.watch.add(t, loss)
        v, memory = self.local.direction(g, x, self.memory)
        own = Own(
            x=self._defer(x),
            g=self._defer(g),
            v=self._defer(v),
            lr=self.lr(t),
            t=t,
            segments=self.segments,
            evaluate=AtStep(self.source, t),
            place=self._place_at(t),
            state={name: self._defer(kept) for name, kept in self.state.items()},
            momentum=self.local.momentum,
            nesterov=self.local.nesterov,
        )
        sent = {name: real(part) for name, part in self.algorithm.send(own).items()}
        inbox, weights, ages = self.mailbox.deliver(t, {"x": x, "g": g, "v": v, **sent})
        deferred = {name: self._defer(part) for name, part in sent.items()}
        own = dataclasses.replace(own, previous=self.mailbox.previous(t), sent=deferred)
        update = self._computed(self.algorithm.step(own, inbox, weights, self._noise(t)))
        extra = 0
        if self.statistics is not None:
            self.statistics.mix(t, inbox, weights)
            extra = self.statistics.bytes_sent
        up = None if self.mailbox.rounds is None else self.mailbox.rounds.graph(t).up
        if up is not None and not bool(up.all()):
            update, memory = self._without_absent(update, memory, up)
        self.x, self.memory, self.state, self.t = update.x, memory, dict(update.state), t + 1
        return StepReport(loss, update.predict, ages, self.mailbox.bytes_sent(t, ages, extra))

    def _place_at(self, t: int) -> Place:
        """Return the agents' place in the network of this step."""
        if self.mailbox.rounds is None:
            return self.place
        return dataclasses.replace(self.place, network=self.mailbox.network_at(t))

    def _without_absent(
        self, update: Update, memory: Tensor | None, up: Bool[Tensor, " n"]
    ) -> tuple[Update, Tensor | None]:
        """Return the update with what absent agents, and the links that they hear over, had before."""
        up = up.to(self.x.device)

        def kept(new: Tensor, old: Tensor) -> Tensor:
            rows = up if len(new) == len(up) else up[self.place.links.receivers]
            return torch.where(rows.view(-1, *[1] * (new.ndim - 1)), new, old)

        if memory is not None:
            memory = kept(memory, torch.zeros_like(memory) if self.memory is None else self.memory)
        state = {name: kept(value, self.state[name]) for name, value in update.state.items()}
        return Update(kept(update.x, self.x), update.predict, state), memory

    def _computed(self, update: Update) -> Update:
        """Compute what the rule has deferred, with what later steps need of the past."""
        if self.recorder is None:
            return update
        self.recorder.finish([update.x, *update.state.values(), *self.mailbox.kept()])
        self.mailbox.settle(real)
        predict = None if update.predict is None else real(update.predict)
        return Update(real(update.x), predict, {name: real(kept) for name, kept in update.state.items()})

    def _noise(self, t: int) -> Noise | None:
        if not self.algorithm.draws:
            return None
        uniform = torch.rand(len(self.x) + 1, generator=generator(self.seed, "noise", t), dtype=torch.float64)
        return Noise(uniform[1:].to(self.x), float(uniform[0]))

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that the next step depends on, including messages in flight."""
        state = {"t": torch.tensor(self.t), "x": self.x}
        if self.memory is not None:
            state["memory"] = self.memory
        state |= {f"state.{name}": value for name, value in self.state.items()}
        if self.statistics is not None:
            state |= {f"statistics.{name}": value for name, value in self.statistics.state_dict().items()}
        return state | {f"mailbox.{name}": value for name, value in self.mailbox.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        self.t = int(state["t"])
        self.x = torch.empty_like(self.x).copy_(state["x"])  # copy_ refuses another shape
        self.memory = state["memory"].to(self.x) if "memory" in state else None
        kept = part_of(state, "state.")
        links = self.place.links
        self.state = {
            name: torch.empty_like(value).copy_(links.listed(kept[name], value)) for name, value in self.state.items()
        }
        self.mailbox.load_state_dict(part_of(state, "mailbox."))
        if self.statistics is not None:
            self.statistics.load_state_dict(part_of(state, "statistics."))


def check_schedule(algorithm: Algorithm, network: Network) -> None:
    """Refuse a rule that cannot work on a graph that changes."""
    schedule = network.schedule
    if schedule is None:
        return
    if algorithm.totals:
        raise UserError(
            f"{algorithm.name} sends running totals, which need the same links in every step, but the schedule "
            f"'{schedule.spec()}' changes them; use another rule, or no schedule"
        )
    if schedule.has_absences and algorithm.votes:
        raise UserError(
            f"{algorithm.name} with these options needs all agents' votes at every step, but with the schedule "
            f"'{schedule.spec()}' some are away; use scope=agent"
        )


def check_offers(algorithm: Algorithm, source: Offering) -> None:
    """Refuse a rule that needs an evaluation which the source does not offer."""
    missing = sorted(algorithm.needs - source.offers)
    if missing:
        raise UserError(
            f"{algorithm.name} with these options also needs {', '.join(missing)}, which was not given; "
            "pass it (gm.trajectory takes loss=…) or choose other options"
        )
