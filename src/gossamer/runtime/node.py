"""One agent's side of a rule: publish, receive, and call the rule with a = 1.

The rule is the simulator's, and so is the order of a step: the gradient; `send`; the messages move; `step`. Only
the ages differ: here they are measured, in own iterations since the sender took its snapshot.
"""

import time
import warnings
from dataclasses import replace

import torch

from gossamer.algorithms import Algorithm, Evaluate, Noise, Own, Place, Update
from gossamer.errors import StabilityWarning, UserError
from gossamer.network import NOTHING, Arrivals, Network
from gossamer.runtime.agent import Agent, StepResult
from gossamer.runtime.inbox import InboxMaker, OwnPast
from gossamer.runtime.payload import PayloadLayout
from gossamer.runtime.publisher import Publisher
from gossamer.runtime.received_messages import ReceivedMessages, StepClock
from gossamer.runtime.transport.base import Transport, Wrapper
from gossamer.runtime.transport.simulated_delays import SimulatedDelays
from gossamer.seeding import generator
from gossamer.shapes import Float, Tensor
from gossamer.state.checkpoint import part_of

POLL = 0.002  # seconds between two looks while an agent waits to begin
MOST_STEPS = 2**40  # a larger iteration is not valid
FAREWELL = 10.0  # seconds that an agent stays for neighbours that have not taken its last message
LOCKSTEP_DEADLINE = 30.0  # seconds that a neighbour is waited for in lock step


class Node:
    """A rule on one agent."""

    def __init__(
        self,
        agent: Agent,
        algorithm: Algorithm,
        x: Float[Tensor, "1 d"],
        *,
        segments: tuple[int, ...],
        plain: bool,
        momentum: float = 0.0,
        share: float = 1.0,
    ) -> None:
        network = agent.network.without_delay() if algorithm.waits else agent.network
        self.agent, self.algorithm, self.network, self.segments = agent, algorithm, network, segments
        check_rule(algorithm, network, plain=plain)
        if (warning := algorithm.check(network, momentum=momentum)) and network.num_agents > 1:
            warnings.warn(warning, StabilityWarning, stacklevel=3)
        self.senders = network.pattern.senders_of(agent.rank)
        self.place = Place(
            network,
            torch.tensor([agent.rank], device=x.device),
            torch.tensor([share]).to(x),
            torch.tensor(self.senders, dtype=torch.int64, device=x.device),
        )
        self.t, self._met = 0, False
        self._free: int | None = None  # when the agent last stopped waiting; in nanoseconds, None before the first step
        self.state: dict[str, Tensor] = algorithm.start(x, self.place)
        layout = PayloadLayout(algorithm, segments, x.dtype, plain=plain, compress=agent.run.compress)
        depth = self._depth()
        self._clock, self._past = StepClock(depth), OwnPast(algorithm, x, depth, plain=plain)
        oldest = depth - 1 if algorithm.totals else None
        self.received = ReceivedMessages(
            self.senders,
            layout,
            x,
            deadline=agent.run.deadline,
            oldest=oldest,
            counts_sender_steps=algorithm.uses_sender_steps,
        )
        self._transport = self._with_delays(agent.transport)
        self._publisher = Publisher(self._transport, layout, agent.rank, agent.incarnation, waits=self._lockstep)
        self._inbox = InboxMaker(
            algorithm, self.place, self.received, self._past, tolerance=self._tolerance, oldest=depth - 1, plain=plain
        )

    @property
    def _lockstep(self) -> bool:
        return self.agent.run.lockstep or self.algorithm.waits

    def _with_delays(self, transport: Transport) -> Transport:
        """Add the network's own delays, if it has any, and lock step."""
        network = self.network
        if not self._lockstep and network.delay.largest == 0 and network.loss == 0:
            return transport
        arrivals = self._arrivals()
        deadline = LOCKSTEP_DEADLINE if self.agent.run.deadline == "auto" else float(self.agent.run.deadline)
        return SimulatedDelays(
            transport,
            arrivals,
            self.agent.rank,
            self.senders,
            lockstep=self._lockstep,
            sends=self._sends,
            deadline=deadline,
        )

    def _arrivals(self) -> Arrivals:
        """Return the network's own delays, as the simulator draws them."""
        rule = self.algorithm
        return Arrivals(
            self.network,
            self.agent.run.seed,
            forget=not rule.totals,
            period=rule.period,
            period_inside=rule.period_inside,
        )

    def _depth(self) -> int:
        """Return the number of own iterations to keep: the largest age of a message."""
        return max(self.agent.run.max_age, self._arrivals().largest_age if self._lockstep else 0) + 1

    @property
    def _tolerance(self) -> int:
        """The largest age that counts as current: the model's own in lock step, where ages are exact."""
        return self.network.reliable_delay if self._lockstep else self.agent.run.tolerance

    def _sends(self, t: int) -> bool:
        return t % self.algorithm.period == 0 or t % self.algorithm.period_inside == 0

    def step(
        self,
        x: Float[Tensor, "1 d"],
        g: Float[Tensor, "1 d"],
        v: Float[Tensor, "1 d"],
        lr: float,
        evaluate: Evaluate | None = None,
        momentum: float = 0.0,
        nesterov: bool = False,
    ) -> StepResult:
        """Take one step from x along the direction v, with the neighbours' messages."""
        t = self.t
        own = Own(
            x,
            g,
            v,
            lr,
            t,
            self.segments,
            evaluate=evaluate,
            place=self.place,
            state=self.state,
            momentum=momentum,
            nesterov=nesterov,
        )
        sent = self.algorithm.send(own)
        vectors = {"x": x, "g": g, "v": v, **sent}
        now = time.monotonic_ns()
        computed = None if self._free is None else now - self._free
        self._clock.add(t, now)
        self._past.push(t, vectors)
        length = self._publisher.publish(t, now, vectors, self._inbox.heard) if self._sends(t) else 0
        waits = self._lockstep or not self._met
        if not self._met:
            self._met = True
            self.received.assume(x)
            self._meet()
        self._transport.tick(t)
        self._free = time.monotonic_ns() if waits else now
        held = self.received.receive(self._transport, self._clock)
        if isinstance(self._transport, SimulatedDelays) and self._lockstep:
            self._inbox.everyone = self._transport.ages  # drawn for all agents from the shared seed
        inbox, weights = self._inbox.make(t, vectors, held)
        previous = self._past.previous(t)
        if previous is not None or sent:
            own = replace(own, previous=previous, sent=sent)
        update = self.algorithm.step(own, inbox, weights, self._noise(t))
        self.state, self.t = dict(update.state), t + 1
        ages = dict(zip(self.senders, held.ages, strict=True))
        arrivals = self.received.arrivals(held) if self.agent.run.record else {}
        return StepResult(update.x, _share(update), ages, length * len(self.senders), computed, arrivals)

    def _noise(self, t: int) -> Noise | None:
        """Return the numbers that the simulator would draw for this agent and iteration."""
        if not self.algorithm.draws:
            return None
        count = self.network.num_agents + 1
        uniform = torch.rand(count, generator=generator(self.agent.run.seed, "noise", t), dtype=torch.float64)
        mine = uniform[self.agent.rank + 1].reshape(1)
        return Noise(mine.to(self.place.share), float(uniform[0]))

    def newest_state(self, wait: float) -> tuple[Float[Tensor, "1 d"], int] | None:
        """Return the state and iteration of the most advanced neighbour; None if none is heard in time."""
        until = time.monotonic() + wait
        while "x" in self.received.messages and self.senders:
            held = self.received.receive(self.agent.transport, self._clock)
            there = [place for place, age in enumerate(held.ages) if age != NOTHING]
            if there:
                place = max(there, key=lambda place: self.received.sequence_of(self.senders[place]))
                sequence = self.received.sequence_of(self.senders[place])
                x = self.received.messages["x"][place : place + 1].clone()
                return (x, sequence) if sequence < MOST_STEPS else None
            if time.monotonic() >= until:
                break
            time.sleep(POLL)
        return None

    def begin_at(self, t: int) -> None:
        """Continue at another iteration, with no known past."""
        self.t = t
        self._clock.clear()
        self._past.clear()

    def hurry(self) -> None:
        """Stop waiting, because the run ends."""
        if isinstance(self._transport, SimulatedDelays):
            self._transport.hurried = True

    def close(self) -> None:
        """Send pending messages; in lock step, wait until the neighbours have the last one."""
        self._publisher.close()
        if self._lockstep:
            self._transport.flush(FAREWELL)

    def _meet(self) -> None:
        """Wait a while for the neighbours' first messages, so that agents begin together.

        Do not wait for neighbours that have left: in a short run one may end before this agent hears of it.
        """
        agent, transport = self.agent, self.agent.transport
        while isinstance(transport, Wrapper):  # a fault that hides a message does not hide that its sender is there
            transport = transport.inner
        until = time.monotonic() + agent.meet
        missing = set(self.senders)
        while missing and time.monotonic() < until:
            missing = {peer for peer in missing if transport.latest(peer) is None and not agent.has_left(peer)}
            if missing:
                time.sleep(POLL)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the iteration, and the rule's state.

        Neither the past nor the codecs' memory is kept: after a restart both are out of date.
        """
        return {"t": torch.tensor(self.t), **{f"rule.{name}": value for name, value in self.state.items()}}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` returned, and forget the past."""
        kept = part_of(state, "rule.")
        if set(kept) != set(self.state):
            names = ", ".join(sorted(kept)) or "nothing"
            raise UserError(f"the checkpoint is of another algorithm than {self.algorithm.name}: it keeps {names}")
        self.begin_at(int(state["t"]))
        self.state = {name: torch.empty_like(value).copy_(kept[name]) for name, value in self.state.items()}


def _share(update: Update) -> float | None:
    if update.predict is None or bool(update.predict.isnan().any()):
        return None
    return float(update.predict)


def check_rule(algorithm: Algorithm, network: Network, *, plain: bool) -> None:
    """Refuse rules that one agent cannot run alone."""
    algorithm.check_local(plain=plain)
    algorithm.check(network)
    if network.schedule is not None:
        raise UserError(
            f"schedule '{network.schedule.spec()}' needs the simulator: processes have no common rounds; "
            "leave it out, or train in the simulator"
        )
    if algorithm.votes:
        raise UserError(
            f"{algorithm.name} with these options needs all agents' votes at every step, which only the simulator has; "
            "use scope=agent, or train in the simulator"
        )
