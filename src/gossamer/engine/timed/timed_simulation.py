"""N agents on a testbed. Training runs and timelines use the same loop.

A gradient depends only on the state at which its iteration began. So whenever one is needed, those of all iterations
under way are computed in one call. Where all agents update at once, the rule is called once for all, as in the
simulator in steps; else once for each agent, as in the runtime.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from gossamer.algorithms import Algorithm, Noise, Own, Past, Place, Update
from gossamer.algorithms.message_parts import aliases, bytes_on_links, parts_sent
from gossamer.engine.norm_statistics import Statistics
from gossamer.engine.simulation import NonFinite, Watch, check_offers, check_schedule
from gossamer.engine.timed.gradients_under_way import AtIterations, GradientsUnderWay, TimedSource
from gossamer.engine.timed.inboxes import AtUpdate, Inboxes
from gossamer.engine.timed.rows import Rows
from gossamer.engine.timed.saved_state import SnapshotStore, from_tensor, load_events, save_events, to_tensor
from gossamer.engine.timed.snapshots import PREFIX, Block, OwnPast, Snapshot
from gossamer.engine.timed.timetable import NEVER, Heard, Moment, State, Timetable
from gossamer.fused import make_recorder, real
from gossamer.network import Network
from gossamer.seeding import generator
from gossamer.shapes import Float, Tensor
from gossamer.state.checkpoint import part_of
from gossamer.state.local import LocalOptimizer
from gossamer.testbed import Testbed
from gossamer.testbed.time_unit import to_nanoseconds, to_seconds


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
    losses: npt.NDArray[np.float64] | None
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
        statistics: Statistics | None = None,
        share: Float[Tensor, " n"] | None = None,
        fused: bool = True,
    ) -> None:
        self.algorithm, self.source, self.lr, self.seed, self.bed = algorithm, source, lr, seed, bed
        self.network, self.local = network, local or LocalOptimizer()
        self.segments = segments or (x0.shape[1],)
        algorithm.check_local(plain=self.local.plain)
        check_offers(algorithm, source)
        check_schedule(algorithm, network)
        count, pattern = network.num_agents, network.pattern
        self._everyone, links_of = list(range(count)), pattern.starts.tolist()
        self._each = each = list(range(count + 1))
        share = (torch.ones(count) if share is None else share).to(x0)
        self.place = Place(network, torch.arange(count, device=x0.device), share)
        self.places = [self._place_of(agent) for agent in range(count)]
        self._x = Rows(x0.clone(), each)
        self.memory: Rows | None = None  # of the local momentum
        state = algorithm.start(x0, self.place)
        self.state = {name: Rows(rows, each if len(rows) == count else links_of) for name, rows in state.items()}
        self._names = tuple(dict.fromkeys(("x", *parts_sent(algorithm.message, plain=self.local.plain))))
        self._alias = aliases(plain=self.local.plain)
        self._prefix = Rows(x0.new_zeros(x0.shape, dtype=torch.float64), each) if self._keeps(Past.WINDOW) else None
        self.pasts = [OwnPast() for _ in range(count)] if not self._keeps(Past.NONE) else []
        size, itemsize = x0.shape[1], x0.element_size()
        sizes = bytes_on_links(algorithm, network, size, itemsize, plain=self.local.plain)
        sizes = bed.scaled(sizes, size * itemsize)
        spared = network.spared_values.tolist()
        periods = [algorithm.period_inside if inside else algorithm.period for inside in spared]
        self.table = Timetable(
            bed,
            network,
            seed,
            sizes,
            waits=algorithm.waits,
            forgets=not algorithm.totals,
            periods=periods,
            counts_sender_steps=algorithm.uses_sender_steps,
        )
        tolerance = bed.tolerance if not algorithm.waits else 0
        self.inboxes = Inboxes(
            algorithm, network, self.places, x0[:1], tolerance, self.local.plain, rounds=self.table.rounds
        )
        self.recorder = make_recorder(x0) if fused else None
        self._defer = self.recorder.defer if self.recorder is not None else lambda rows: rows
        self.gradients = GradientsUnderWay(source, self._x, self.table)
        self._turns: dict[int, Turn] = {}
        self.statistics, self.watch = statistics, Watch()
        self._losses = torch.full((count,), torch.nan, dtype=torch.float64).numpy()  # of the newest iterations

    def _keeps(self, past: Past) -> bool:
        return self.algorithm.past is past

    def _place_of(self, agent: int) -> Place:
        senders = torch.tensor(
            self.network.pattern.senders_of(agent), dtype=torch.int64, device=self.place.share.device
        )
        own = slice(agent, agent + 1)
        return Place(self.network, self.place.agents[own], self.place.share[own], senders)

    def _place_at(self, place: Place, iteration: int) -> Place:
        """Return a place in the network of an iteration."""
        if self.table.rounds is None:
            return place
        return dataclasses.replace(place, network=self.inboxes.network_at(iteration))

    @property
    def x(self) -> Float[Tensor, "n d"]:
        """The states of all agents: where their iterations under way began."""
        return self._x.whole()

    def state_of(self, agent: int) -> Float[Tensor, "1 d"]:
        """Return the state of one agent."""
        return self._x.part(agent)

    @property
    def t(self) -> int:
        """The mean number of updates of the agents, rounded down."""
        return sum(self.table.done) // len(self._everyone)

    @property
    def now(self) -> float:
        """The simulated time, in seconds."""
        return to_seconds(self.table.now)

    def advance(self, seconds: float) -> list[UpdateReport] | None:
        """Go to the next moment, unless it is later than this; return what was updated, None if nothing was left.

        `seconds` may be infinite.
        """
        moment = self.table.next(NEVER if math.isinf(seconds) else to_nanoseconds(seconds))
        if moment is None:
            return None
        for agent, message in moment.adopted.items():
            self._adopt(agent, message.content)
        for agent in (*moment.returned, *moment.adopted):
            self.gradients.discard(agent)
            self.inboxes.lone.forget(agent)
        contents = self._end_iterations(moment)
        ready = self.table.publish(moment, contents)
        reports = self._update(ready)
        for agent in ready:
            self.table.begin(agent)
            self.gradients.begin(agent)
        return reports

    def go_to(self, seconds: float) -> None:
        """Let time pass up to here, where nothing happens before."""
        self.table.now = max(self.table.now, to_nanoseconds(seconds))

    def _adopt(self, agent: int, snapshot: Snapshot) -> None:
        """Let a returning agent go on from a neighbour's state. Its momentum and what the rule kept are gone."""
        x = snapshot.part("x")
        self._x.replace_part(agent, x)
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
        self.gradients.compute(agents, together=together)
        if together:
            g, loss = self.gradients.take_all()
            self._check_losses(agents, None if loss is None else loss.tolist())
            block = self._take_turn(None, self.place, self._x.whole(), g, iteration[0])
            return {agent: self._kept(agent, moment.time, Snapshot(block, agent)) for agent in agents}
        contents = {}
        for agent in agents:
            k, g, lone_loss = self.gradients.take(agent)
            if lone_loss is not None:
                self._check_losses([agent], [lone_loss])
            block = self._take_turn(agent, self.places[agent], self._x.part(agent), g, k)
            contents[agent] = self._kept(agent, moment.time, Snapshot(block, 0))
        return contents

    def _check_losses(self, agents: Sequence[int], losses: Sequence[float] | None) -> None:
        """Note losses; stop a run where one is not finite."""
        if losses is None:
            return
        self.watch.newest = torch.from_numpy(self._losses)  # the same memory, which changes
        for agent, loss in zip(agents, losses, strict=True):
            self._losses[agent] = loss
            if not math.isfinite(loss):
                values = torch.zeros(len(self._everyone)).index_fill_(0, torch.tensor(agent), loss)
                raise NonFinite("loss", values, self.table.iteration[agent])

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
            place=self._place_at(place, k),
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
            blocks = self.inboxes.blocks_by_age(list(heard.values()))
            if blocks is not None:
                return [self._update_all(turn, blocks, list(heard.values()))]
        for agent in ready:
            self.inboxes.note_current(agent, self.table.iteration[agent], heard[agent])
        return [self._update_one(agent, heard[agent]) for agent in ready]

    def _update_all(self, turn: Turn, blocks: Mapping[int, Block], heard: list[Heard]) -> UpdateReport:
        at = self.inboxes.of_all(turn.own.t, turn.block, blocks, heard, self._defer)
        own = turn.own
        if self.pasts:
            previous = [past.at(own.t - 1) for past in self.pasts]
            if all(each.block is previous[0].block for each in previous):
                own = dataclasses.replace(own, previous=self._defer(previous[0].block.parts["x"]))
            else:
                own = dataclasses.replace(own, previous=torch.cat([each.part("x") for each in previous]))
        update = self._computed_update(self.algorithm.step(own, at.inbox, at.weights, self._noise(own.t, None)))
        self._add_to_prefix(None, real(own.x))
        self._x.replace(update.x)
        if turn.memory is not None:
            self.memory = Rows(turn.memory, self._each)
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
        self._x.replace_part(agent, update.x)
        if turn.memory is not None:
            if self.memory is None:
                self.memory = Rows(torch.zeros_like(self._x.whole()), self._each)
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
            place=self._place_at(self.places[agent], own.t),
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
        losses = None if self.watch.newest is None else self._losses[agents]
        return UpdateReport(agents, losses, update.predict, heard)

    # ---- saving

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that the next moment depends on, including messages in flight."""
        store = SnapshotStore()
        events = save_events(self.table, store)
        events["pasts"] = [[[k, end, store.number(each)] for k, end, each in past.items()] for past in self.pasts]
        events["losses"] = None if self.watch.newest is None else [repr(loss) for loss in self._losses.tolist()]
        waiting = [agent for agent in self._everyone if self.table.state[agent] is State.WAITING]
        turns = {id(self._turns[agent]): self._turns[agent] for agent in waiting}
        together = len(waiting) == len(self._everyone) and len(turns) == 1
        events["together"] = store.number(Snapshot(self._turns[0].block, 0)) if together else None
        state = {"x": self._x.whole(), **{f"state.{name}": rows.whole() for name, rows in self.state.items()}}
        if self.memory is not None:
            state["memory"] = self.memory.whole()
        if self._prefix is not None:
            state["prefix"] = self._prefix.whole()
        for agent in waiting:
            g = real(self._turns[agent].own.g)
            state[f"waiting.{agent}"] = g if len(g) == 1 else g[agent : agent + 1]
        state |= {f"gradient.{name}": value for name, value in self.gradients.state_dict().items()}
        state |= {f"snapshot.{name}": part for name, part in store.state_dict().items()}
        if self.statistics is not None:
            state |= {f"statistics.{name}": value for name, value in self.statistics.state_dict().items()}
        return {**state, "current": self.inboxes.current_links(), "events": to_tensor(events)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        events, like = from_tensor(state["events"]), self._x.whole()
        store = SnapshotStore.load(part_of(state, "snapshot."), like.device)
        load_events(self.table, events, store)
        self._x.replace(torch.empty_like(like).copy_(state["x"]))  # copy_ refuses another shape
        if "memory" in state:
            self.memory = Rows(state["memory"].to(like), self._each)
        for name, rows in self.state.items():
            rows.replace(state[f"state.{name}"].to(rows.whole()))
        if self._prefix is not None:
            self._prefix.replace(state["prefix"].to(like.device))
        for past, kept in zip(self.pasts, events["pasts"], strict=True):
            past.clear()
            for k, end, number in kept:
                past.push(k, end, store.snapshot(number))
        if events["losses"] is not None:
            self._losses[:] = [float(loss) for loss in events["losses"]]
            self.watch.newest = torch.from_numpy(self._losses)
        self.gradients.load_state_dict(part_of(state, "gradient."), like)
        self.inboxes.lone.set_everything(state["current"].numpy())
        if self.statistics is not None:
            self.statistics.load_state_dict(part_of(state, "statistics."))
        together = events["together"]
        block = None if together is None else store.snapshot(together).block
        self._take_turns_again(part_of(state, "waiting."), block)

    def _take_turns_again(self, gradients: dict[str, Tensor], together: Block | None) -> None:
        """Make what waiting agents know once more, from their gradients; `together`: what all have published."""
        self._turns, like = {}, self._x.whole()
        if together is not None:
            g = torch.cat([gradients[str(agent)] for agent in self._everyone]).to(like)
            self._x.replace(together.parts["x"])  # the same object: rules see that all messages are of this moment
            self._take_turn(None, self.place, self.x, g, self.table.iteration[0])
            turn = dataclasses.replace(self._turns[0], block=together)
            self._turns = dict.fromkeys(self._everyone, turn)
            return
        for name, g in gradients.items():
            agent = int(name)
            self._take_turn(agent, self.places[agent], self._x.part(agent), g.to(like), self.table.iteration[agent])
