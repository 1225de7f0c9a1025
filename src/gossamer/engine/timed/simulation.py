"""N agents on a testbed. Training runs and timelines use the same loop.

A gradient depends only on the state at which its iteration began. So whenever one is needed, those of all iterations
under way are computed in one call. Where all agents update at once, the rule is called once for all, as in the
simulator in steps; else once for each agent, as in the runtime.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from gossamer.algorithms import Algorithm, Noise, Own, Past, Place, Update
from gossamer.algorithms.message_parts import aliases, part_bytes, parts_sent
from gossamer.engine.simulation import NonFinite, check_offers
from gossamer.engine.timed.inboxes import AtUpdate, Inboxes
from gossamer.engine.timed.rows import Rows
from gossamer.engine.timed.snapshots import PREFIX, Block, OwnPast, Snapshot
from gossamer.engine.timed.timetable import Heard, Moment, Timetable
from gossamer.fused import make_recorder, real
from gossamer.network import Network
from gossamer.seeding import generator
from gossamer.shapes import Float, Tensor
from gossamer.state.local import LocalOptimizer
from gossamer.testbed import Testbed
from gossamer.testbed.time_unit import to_nanoseconds, to_seconds


@runtime_checkable
class TimedSource(Protocol):
    """Computes gradients of some agents at once, each at its own iteration; a function of these alone."""

    @property
    def offers(self) -> frozenset[str]:
        """The evaluations that it supports: of loss, gradient and fresh_gradient."""

    def gradient(
        self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int]
    ) -> tuple[Float[Tensor, "a d"], Float[Tensor, " a"] | None]:
        """Return the gradient of each agent on its batch of its iteration, and its loss if known."""

    def gradient_elsewhere(
        self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int]
    ) -> Float[Tensor, "a d"]:
        """Return the gradients on the same batches at another point, without side effects."""

    def loss(self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int]) -> Float[Tensor, " a"]:
        """Return the losses on the same batches."""

    def fresh_gradient(
        self, x: Float[Tensor, "a d"], agents: Sequence[int], iterations: Sequence[int]
    ) -> Float[Tensor, "a d"]:
        """Return the gradients on other batches."""


@dataclass(frozen=True)
class AtIterations:
    """A source bound to some agents and their iterations: an `algorithms.base.Evaluate`."""

    source: TimedSource
    agents: Sequence[int]
    iterations: Sequence[int]

    def loss(self, x: Float[Tensor, "a d"]) -> Float[Tensor, " a"]:
        """Return each agent's loss at x."""
        return self.source.loss(real(x), self.agents, self.iterations)

    def gradient(self, x: Float[Tensor, "a d"]) -> Float[Tensor, "a d"]:
        """Return each agent's gradient at x."""
        return self.source.gradient_elsewhere(real(x), self.agents, self.iterations)

    def fresh_gradient(self, x: Float[Tensor, "a d"]) -> Float[Tensor, "a d"]:
        """Return each agent's gradient at x on another batch."""
        return self.source.fresh_gradient(real(x), self.agents, self.iterations)


@dataclass(frozen=True)
class Turn:
    """What agents know at the end of an iteration, until they update: all agents, or one."""

    own: Own
    block: Block
    memory: Tensor | None


@dataclass(frozen=True)
class UpdateReport:
    """The measurements of an update: of one agent, or of all."""

    agents: Sequence[int]
    loss: Float[Tensor, " a"] | None
    predict: Float[Tensor, " a"] | None
    heard: Sequence[Heard]


class TimedSimulation:
    """The state of all agents on a testbed, and `advance`, which goes on to the next moment."""

    def __init__(
        self,
        algorithm: Algorithm,
        network: Network,
        bed: Testbed,
        source: TimedSource,
        x0: Float[Tensor, "n d"],
        *,
        lr: Callable[[int], float],
        local: LocalOptimizer | None = None,
        segments: tuple[int, ...] | None = None,
        seed: int = 0,
        share: Float[Tensor, " n"] | None = None,
        fused: bool = True,
    ) -> None:
        self.algorithm, self.source, self.lr, self.seed, self.bed = algorithm, source, lr, seed, bed
        self.network, self.local = network, local or LocalOptimizer()
        self.segments = segments or (x0.shape[1],)
        algorithm.check_local(plain=self.local.plain)
        check_offers(algorithm, source)
        count, pattern = network.num_agents, network.pattern
        self._everyone, links_of = list(range(count)), pattern.starts.tolist()
        each = list(range(count + 1))
        share = (torch.ones(count) if share is None else share).to(x0)
        self.place = Place(network, torch.arange(count, device=x0.device), share)
        self.places = [self._place_of(agent) for agent in range(count)]
        self.x = Rows(x0.clone(), each)
        self.memory: Rows | None = None  # of the local momentum
        state = algorithm.start(x0, self.place)
        self.state = {name: Rows(rows, each if len(rows) == count else links_of) for name, rows in state.items()}
        self._names = tuple(dict.fromkeys(("x", *parts_sent(algorithm.message, plain=self.local.plain))))
        self._alias = aliases(plain=self.local.plain)
        self._prefix = Rows(x0.new_zeros(x0.shape, dtype=torch.float64), each) if self._keeps(Past.WINDOW) else None
        self.pasts = [OwnPast() for _ in range(count)] if not self._keeps(Past.NONE) else []
        self.sizes = message_bytes(algorithm, network, x0, plain=self.local.plain)
        spared = network.spared_values.tolist()
        periods = [algorithm.period_inside if inside else algorithm.period for inside in spared]
        self.table = Timetable(
            bed,
            network,
            seed,
            self.sizes,
            waits=algorithm.waits,
            forgets=not algorithm.totals,
            periods=periods,
            counts_sender_steps=algorithm.uses_sender_steps,
        )
        tolerance = bed.tolerance if not algorithm.waits else 0
        self.inboxes = Inboxes(algorithm, network, self.places, x0[:1], tolerance, self.local.plain)
        self.recorder = make_recorder(x0) if fused else None
        self._defer = self.recorder.defer if self.recorder is not None else lambda rows: rows
        self._gradients: dict[int, tuple[int, Tensor, float | None]] = {}  # agent -> iteration, gradient, loss
        self._computed: tuple[Tensor, Tensor | None] | None = None  # of all agents, at the same iteration
        self._turns: dict[int, Turn] = {}
        self._losses: dict[int, float] = {}

    def _keeps(self, past: Past) -> bool:
        return self.algorithm.past is past

    def _place_of(self, agent: int) -> Place:
        senders = torch.tensor(
            self.network.pattern.senders_of(agent), dtype=torch.int64, device=self.place.share.device
        )
        own = slice(agent, agent + 1)
        return Place(self.network, self.place.agents[own], self.place.share[own], senders)

    @property
    def now(self) -> float:
        """The simulated time, in seconds."""
        return to_seconds(self.table.now)

    def advance(self, seconds: float) -> list[UpdateReport] | None:
        """Go to the next moment, unless it is later than this; return what was updated, None if nothing was left."""
        moment = self.table.next(to_nanoseconds(seconds))
        if moment is None:
            return None
        for agent, message in moment.adopted.items():
            self._adopt(agent, message.content)
        for agent in (*moment.returned, *moment.adopted):
            self._gradients.pop(agent, None)
            self.inboxes.lone.forget(agent)
        contents = self._end_iterations(moment)
        ready = self.table.publish(moment, contents)
        reports = self._update(ready)
        for agent in ready:
            self.table.begin(agent)
        return reports

    def _adopt(self, agent: int, snapshot: Snapshot) -> None:
        """Let a returning agent go on from a neighbour's state. Its momentum and what the rule kept are gone."""
        x = snapshot.part("x")
        self.x.replace_part(agent, x)
        if self.memory is not None:
            self.memory.replace_part(agent, torch.zeros_like(x))
        for name, rows in self.algorithm.start(x, self.places[agent]).items():
            self.state[name].replace_part(agent, rows)
        if self.pasts:
            self.pasts[agent].clear()

    # ---- the end of an iteration

    def _end_iterations(self, moment: Moment) -> dict[int, Snapshot]:
        """Return what the agents publish whose iterations end now."""
        agents, iteration = moment.ended, self.table.iteration
        if not agents:
            return {}
        together = len(agents) == len(self._everyone) > 1 and len({iteration[agent] for agent in agents}) == 1
        self._compute_gradients(agents, together=together)
        if together:
            g, loss = self._computed_of_all()
            self._check_losses(agents, loss)
            block = self._take_turn(None, self.place, self.x.whole(), g, iteration[0])
            return {agent: self._kept(agent, moment.time, Snapshot(block, agent)) for agent in agents}
        contents = {}
        for agent in agents:
            k, g, lone_loss = self._gradients.pop(agent)
            if lone_loss is not None:
                self._check_losses([agent], torch.tensor([lone_loss]))
            block = self._take_turn(agent, self.places[agent], self.x.part(agent), g, k)
            contents[agent] = self._kept(agent, moment.time, Snapshot(block, 0))
        return contents

    def _compute_gradients(self, agents: Sequence[int], *, together: bool) -> None:
        """Compute the missing gradients, with those of all other iterations under way."""
        if self._computed is not None and not together:
            self._split_computed()
        known = self._gradients if self._computed is None else dict.fromkeys(self._everyone)
        if all(agent in known for agent in agents):
            return
        iteration = self.table.iteration
        wanted = [agent for agent in self.table.computing(agents) if agent not in known]
        iterations = [iteration[agent] for agent in wanted]
        g, loss = self.source.gradient(self.x.of(wanted), wanted, iterations)
        if together and len(wanted) == len(self._everyone):
            self._computed = g, loss
            return
        losses: list[float | None] = [None] * len(wanted) if loss is None else loss.tolist()
        for place, (agent, k) in enumerate(zip(wanted, iterations, strict=True)):
            row = g[place : place + 1]
            self._gradients[agent] = k, row.clone() if len(g) > 1 else row, losses[place]

    def _split_computed(self) -> None:
        assert self._computed is not None
        g, loss = self._computed
        for agent in self._everyone:
            known = None if loss is None else float(loss[agent])
            self._gradients[agent] = self.table.iteration[agent], g[agent : agent + 1].clone(), known
        self._computed = None

    def _computed_of_all(self) -> tuple[Tensor, Tensor | None]:
        """Return the gradients and losses of all agents."""
        if self._computed is not None:
            computed, self._computed = self._computed, None
            return computed
        found = [self._gradients.pop(agent) for agent in self._everyone]
        losses = [loss for _, _, loss in found if loss is not None]
        return torch.cat([g for _, g, _ in found]), torch.tensor(losses) if len(losses) == len(found) else None

    def _check_losses(self, agents: Sequence[int], loss: Tensor | None) -> None:
        """Stop a run whose loss is not finite."""
        if loss is None:
            return
        for agent, value in zip(agents, loss.tolist(), strict=True):
            self._losses[agent] = value
        if not bool(torch.isfinite(loss).all()):
            place = int((~torch.isfinite(loss)).nonzero()[0])
            values = torch.zeros(len(self._everyone)).index_fill_(0, torch.tensor(agents[place]), float(loss[place]))
            raise NonFinite("loss", values, self.table.iteration[agents[place]])

    def _take_turn(
        self, agent: int | None, place: Place, x: Float[Tensor, "a d"], g: Float[Tensor, "a d"], k: int
    ) -> Block:
        """Make the message of an agent, or of all, and keep what the update needs."""
        memory = None if self.memory is None else self.memory.whole() if agent is None else self.memory.part(agent)
        v, memory = self.local.direction(g, x, memory)
        state = {name: rows.whole() if agent is None else rows.part(agent) for name, rows in self.state.items()}
        agents = self._everyone if agent is None else [agent]
        defer = self._defer if agent is None else lambda rows: rows
        own = Own(
            x=defer(x),
            g=defer(g),
            v=defer(v),
            lr=self.lr(k),
            t=k,
            segments=self.segments,
            evaluate=AtIterations(self.source, agents, [k] * len(agents)),
            place=place,
            state={name: defer(rows) for name, rows in state.items()},
            momentum=self.local.momentum,
            nesterov=self.local.nesterov,
        )
        sent = {name: real(part) for name, part in self.algorithm.send(own).items()}
        vectors = {"x": x, "g": g, "v": v, **sent}
        parts = {name: vectors[name] for name in self._names}
        if self._prefix is not None:
            parts[PREFIX] = self._prefix.whole() if agent is None else self._prefix.part(agent)
        block = Block(parts)
        own = dataclasses.replace(own, sent={name: defer(part) for name, part in sent.items()})
        turn = Turn(own, block, memory)
        for each in agents:
            self._turns[each] = turn
        return block

    def _kept(self, agent: int, end: int, snapshot: Snapshot) -> Snapshot:
        if self.pasts:
            self.pasts[agent].push(self.table.iteration[agent], end, snapshot)
        return snapshot

    # ---- the update

    def _update(self, ready: list[int]) -> list[UpdateReport]:
        """Update these agents with what they hold."""
        heard = {agent: self.table.hear(agent) for agent in ready}
        if not ready:
            return []
        turn = self._turns[ready[0]]
        if len(ready) == len(self._everyone) > 1 and all(self._turns[agent] is turn for agent in ready):
            blocks = self.inboxes.blocks_by_age(turn.block, list(heard.values()))
            if blocks is not None:
                return [self._update_all(turn, blocks, list(heard.values()))]
        for agent in ready:
            self.inboxes.note_current(agent, heard[agent])
        return [self._update_one(agent, heard[agent]) for agent in ready]

    def _update_all(self, turn: Turn, blocks: Mapping[int, Block], heard: list[Heard]) -> UpdateReport:
        at = self.inboxes.of_all(turn.block, blocks, heard, self._defer)
        own = turn.own
        if self.pasts:
            previous = [past.at(own.t - 1) for past in self.pasts]
            if all(each.block is previous[0].block for each in previous):
                own = dataclasses.replace(own, previous=self._defer(previous[0].block.parts["x"]))
            else:
                own = dataclasses.replace(own, previous=torch.cat([each.part("x") for each in previous]))
        update = self._computed_update(self.algorithm.step(own, at.inbox, at.weights, self._noise(own.t, None)))
        self._add_to_prefix(None, real(own.x))
        self.x.replace(update.x)
        if turn.memory is not None:
            self.memory = Rows(turn.memory, list(range(len(self._everyone) + 1)))
        for name, rows in update.state.items():
            self.state[name].replace(rows)
        for agent in self._everyone:
            self._forget_past(agent)
        return self._report(self._everyone, update, heard)

    def _computed_update(self, update: Update) -> Update:
        """Compute what the rule has deferred."""
        if self.recorder is None:
            return update
        self.recorder.finish([update.x, *update.state.values()])
        predict = None if update.predict is None else real(update.predict)
        return Update(real(update.x), predict, {name: real(kept) for name, kept in update.state.items()})

    def _update_one(self, agent: int, heard: Heard) -> UpdateReport:
        turn = self._turns.pop(agent)
        if len(turn.own.x) > 1:
            turn = self._turn_of_one(turn, agent)
        own, k = turn.own, turn.own.t
        snapshot = Snapshot(turn.block, 0)
        vectors = {**turn.block.parts, "g": own.g, "v": own.v, **own.sent}
        past = self.pasts[agent] if self.pasts else OwnPast()
        if self.pasts:
            own = dataclasses.replace(own, previous=past.at(k - 1).part("x"))
        at: AtUpdate = self.inboxes.of_one(agent, k, snapshot, vectors, heard, past)
        update = self.algorithm.step(own, at.inbox, at.weights, self._noise(k, agent))
        self._add_to_prefix(agent, own.x)
        self.x.replace_part(agent, update.x)
        if turn.memory is not None:
            if self.memory is None:
                self.memory = Rows(torch.zeros_like(self.x.whole()), list(range(len(self._everyone) + 1)))
            self.memory.replace_part(agent, turn.memory)
        for name, rows in update.state.items():
            self.state[name].replace_part(agent, rows)
        self._forget_past(agent)
        return self._report([agent], update, [heard])

    def _turn_of_one(self, turn: Turn, agent: int) -> Turn:
        """Return one agent's part of a turn of all."""
        rows = slice(agent, agent + 1)
        own = turn.own
        state = {name: held.part(agent) for name, held in self.state.items()}
        own = dataclasses.replace(
            own,
            x=real(own.x)[rows],
            g=real(own.g)[rows],
            v=real(own.v)[rows],
            evaluate=AtIterations(self.source, [agent], [own.t]),
            place=self.places[agent],
            state=state,
            sent={name: real(part)[rows] for name, part in own.sent.items()},
        )
        block = Block({name: part[rows] for name, part in turn.block.parts.items()})
        return Turn(own, block, None if turn.memory is None else turn.memory[rows])

    def _add_to_prefix(self, agent: int | None, x: Tensor) -> None:
        if self._prefix is None:
            return
        if agent is None:
            self._prefix.replace(self._prefix.whole() + x)
        else:
            self._prefix.replace_part(agent, self._prefix.part(agent) + x)

    def _forget_past(self, agent: int) -> None:
        """Drop own snapshots that no message can refer to any more."""
        if not self.pasts:
            return
        table = self.table
        stamps = [stamp for link in table.inward[agent] if (stamp := table.links.oldest_stamp(link)) is not None]
        ends = table.ends[agent]
        oldest = ends[-1 - table.bed.max_age] if len(ends) > table.bed.max_age else 0
        self.pasts[agent].forget(max(oldest, min(stamps)) if stamps else None)

    def _noise(self, k: int, agent: int | None) -> Noise | None:
        """Return the numbers that the simulator in steps draws at this iteration."""
        if not self.algorithm.draws:
            return None
        count = len(self._everyone)
        uniform = torch.rand(count + 1, generator=generator(self.seed, "noise", k), dtype=torch.float64)
        chosen = uniform[1:] if agent is None else uniform[agent + 1 : agent + 2]
        return Noise(chosen.to(self.place.share), float(uniform[0]))

    def _report(self, agents: Sequence[int], update: Update, heard: Sequence[Heard]) -> UpdateReport:
        losses = [self._losses[agent] for agent in agents if agent in self._losses]
        loss = torch.tensor(losses) if len(losses) == len(agents) else None
        return UpdateReport(agents, loss, update.predict, heard)


def message_bytes(algorithm: Algorithm, network: Network, x: Float[Tensor, "n d"], *, plain: bool) -> list[int]:
    """Return the bytes of a message on each link."""
    across, inside = (
        sum(part_bytes(algorithm, name, x.shape[1], x.element_size()) for name in parts_sent(of, plain=plain))
        for of in (algorithm.message_across, algorithm.message)
    )
    return [inside if spared else across for spared in network.spared_values.tolist()]
