"""When iterations end, what has arrived by then, and who waits: the events of a run, without any arithmetic on states.

Agent i begins iteration k, and ends it c_i(k) later, at time T. All iterations that end at T first publish their
messages, then take what has arrived by T, and update. The engine asks for the next moment, gives the contents of the
messages, and says when an agent begins again.
"""

import enum
import heapq
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gossamer.engine.timed.deliveries import MOST_LOGGED, Deliveries, Message
from gossamer.network import NOTHING, Network, Rounds
from gossamer.testbed import Testbed
from gossamer.testbed.testbed import LEAST_DEADLINE, SILENT_INTERVALS
from gossamer.testbed.time_unit import SECOND, to_seconds

NEVER = 2**62


class State(enum.IntEnum):
    """What an agent does."""

    COMPUTING = 0
    WAITING = 1  # for its neighbours' messages: rules that wait
    DOWN = 2
    RETURNING = 3  # waits for a state to adopt


class Event(enum.IntEnum):
    """Events at the same time happen in this order."""

    WAKE = 0  # a returning agent looks for a message
    END = 1
    UPDATE = 2  # of an agent that waited


@dataclass
class Moment:
    """All that happens at one time.

    Attributes:
        time: nanoseconds.
        ended: agents whose iterations end now.
        adopted: agents that return with a neighbour's state: its message.
        returned: agents that return with their own state.
    """

    time: int
    ended: list[int] = field(default_factory=list)
    adopted: dict[int, Message] = field(default_factory=dict)
    returned: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Heard:
    """What an agent holds when it updates, for each of its links: the message, its age and whether it is new."""

    messages: list[Message | None]
    ages: list[int]  # NOTHING: no message, or one that is dropped
    new: list[bool]
    sender_steps: list[int]  # each sender's since its message; the age, unless the rule uses them


class Timetable:
    """The events of a run on a testbed."""

    def __init__(
        self,
        bed: Testbed,
        network: Network,
        seed: int,
        sizes: list[int],
        *,
        waits: bool = False,
        forgets: bool = True,
        periods: list[int] | None = None,
        counts_sender_steps: bool = False,
    ) -> None:
        """`sizes` and `periods` are the bytes of a message and the iterations between two, on each link.

        `waits`: updates wait for the messages of the same iteration. `forgets`: old messages are dropped.
        `counts_sender_steps`: agents estimate how many iterations their senders have ended.
        """
        self.bed, self.waits, self._forgets, self._counts_sender_steps = bed, waits, forgets, counts_sender_steps
        self.rounds = Rounds.of(network, seed)  # an agent's iterations
        links = network.pattern
        receivers, senders = links.receivers.tolist(), links.senders.tolist()
        self.links = Deliveries(bed.links(links, seed), receivers, senders, sizes, queues=waits)
        count, starts = network.num_agents, links.starts.tolist()
        self.inward = [range(starts[i], starts[i + 1]) for i in range(count)]  # each agent's links, as receiver
        self.outward: list[list[int]] = [[] for _ in range(count)]
        for link, sender in enumerate(senders):
            self.outward[sender].append(link)
        self._periods = periods or [1] * len(senders)
        self._clock = bed.iterations(seed)
        self.now = 0
        self.iteration, self.state = [0] * count, [State.COMPUTING] * count
        self.begun = [0] * count
        self.ends: list[list[int]] = [[] for _ in range(count)]  # of the newest own iterations
        self.done = [0] * count  # updates made
        self.published = [-1] * count  # the newest iteration that was published
        self.joined = [0] * count  # the first iteration for which others wait
        self.log: list[tuple[int, State, int, int]] = []  # (agent, what it did, begin, end) of the first spells
        self.spent = {state: [0] * count for state in State}  # nanoseconds; computing counts whole iterations only
        self._version = [0] * count  # events of former versions do not count
        self._heap: list[tuple[int, Event, int, int]] = []
        self._updating: list[int] = []  # agents that waited, and update at this moment
        self._changes = iter(()) if bed.schedule is None else bed.schedule.changes(count, links, seed)
        self._taken_changes = 0
        self._change = next(self._changes, None)
        for agent in range(count):
            self._start(agent, 0)

    # ---- the engine's side

    def next(self, until: int = NEVER) -> Moment | None:
        """Go to the next moment, unless it is later than `until`."""
        while True:
            time = self._heap[0][0] if self._heap else NEVER
            if self._change is not None and self._change.time_ns <= time:
                time = self._change.time_ns
            if time > until or time == NEVER:
                return None
            moment, self.now, self._updating = Moment(time), time, []
            self._apply_changes(moment)
            self._collect(moment)
            if moment.ended or moment.adopted or moment.returned or self._updating:
                return moment

    def publish(self, moment: Moment, contents: Mapping[int, Any]) -> list[int]:
        """Publish what the agents that ended now have to say. Return the agents that update now."""
        now, links = moment.time, self.links
        for agent in moment.ended:
            k = self.iteration[agent]
            self._spend(agent, State.COMPUTING)
            self.ends[agent].append(now)
            if len(self.ends[agent]) > 2 * self.bed.max_age + 8:
                del self.ends[agent][: -self.bed.max_age - 2]
            self.published[agent] = k
            message = Message(k, now, contents[agent])
            for link in self.outward[agent]:
                if links.up[link] and k % self._periods[link] == 0 and self._uses(link, k):
                    links.publish(link, message, now)
                    if self.state[links.receivers[link]] is State.RETURNING:
                        self._wake_later(links.receivers[link])
        if not self.waits:
            return moment.ended
        for agent in moment.ended:
            self.state[agent], self.begun[agent] = State.WAITING, now
        self._check_waiting(
            {links.receivers[e] for agent in moment.ended for e in self.outward[agent]} | {*moment.ended}
        )
        ready, self._updating = self._updating, []
        return sorted(ready)

    def _uses(self, link: int, iteration: int) -> bool:
        """Say whether a link is in use in this iteration of one of its ends."""
        return self.rounds is None or self.rounds.flags(iteration)[link]

    def hear(self, agent: int) -> Heard:
        """Return what an agent holds now, of each of its neighbours; nothing over links that are not in use."""
        links, now, k = self.links, self.now, self.iteration[agent]
        ages: list[int] = []
        heard = Heard([], ages, [], [] if self._counts_sender_steps else ages)
        for link in self.inward[agent]:
            if not self._uses(link, k):
                new, age = False, NOTHING
            elif self.waits:
                new = links.take_numbered(link, k, now)
                age = 0 if new else NOTHING
            else:
                new = links.take(link, now)
                age = self._age(agent, link)
            heard.messages.append(links.held[link] if age != NOTHING else None)
            heard.ages.append(age)
            heard.new.append(new and age != NOTHING)
            if self._counts_sender_steps:
                heard.sender_steps.append(age if age == NOTHING else links.sender_steps(link, now, age))
        return heard

    def begin(self, agent: int) -> None:
        """Let an agent begin its next iteration, now that its update is made."""
        if self.state[agent] is State.WAITING:
            self._spend(agent, State.WAITING)
        self.iteration[agent] += 1
        self.done[agent] += 1
        self._start(agent, self.now)

    def _spend(self, agent: int, state: State) -> None:
        """Note how an agent has spent its time since it began what it does."""
        begin = self.begun[agent]
        self.spent[state][agent] += self.now - begin
        if len(self.log) < MOST_LOGGED and self.now > begin:
            self.log.append((agent, state, begin, self.now))

    def seconds_spent(self, *states: State) -> list[float]:
        """Return each agent's seconds in these states so far, those of what it does now included."""
        total = []
        for agent, state in enumerate(self.state):
            unfinished = self.now - self.begun[agent] if state in states else 0
            total.append(to_seconds(unfinished + sum(self.spent[each][agent] for each in states)))
        return total

    def internals(self) -> dict[str, Any]:
        """Return the events to come, as plain values."""
        return {"heap": self._heap, "version": self._version, "taken_changes": self._taken_changes}

    def restore(self, heap: list[tuple[int, Event, int, int]], version: list[int], taken_changes: int) -> None:
        """Restore the events to come. Changes of the schedule are a function of the seed."""
        self._heap, self._version = heap, version
        while self._taken_changes < taken_changes:
            self._change = next(self._changes, None)
            self._taken_changes += 1

    # ---- ages

    def _age(self, agent: int, link: int) -> int:
        """Return how many own iterations ended at or after the stamp of the message that is held, less one."""
        message = self.links.held[link]
        if message is None:
            return NOTHING
        ends = self.ends[agent]
        if len(ends) > 1 and ends[-2] < message.stamp:  # the usual case
            return 0
        age = len(ends) - 1 - bisect_left(ends, message.stamp)
        if not self._forgets:
            return min(age, self.bed.max_age)
        return NOTHING if age > self.bed.max_age or self._is_silent(link) else age

    def _is_silent(self, link: int) -> bool:
        silence = self.now - self.links.heard_at[link]
        if isinstance(self.bed.deadline, str):
            if self.rounds is not None:  # a link that is not in use tells nothing of its sender
                return False
            usual = self.links.interval[link]
            return usual > 0 and silence > max(LEAST_DEADLINE * SECOND, SILENT_INTERVALS * usual)
        return silence > self.bed.deadline * SECOND

    # ---- events

    def _start(self, agent: int, now: int) -> None:
        self.state[agent], self.begun[agent] = State.COMPUTING, now
        end = self._clock.end(agent, self.iteration[agent], now)
        heapq.heappush(self._heap, (end, Event.END, agent, self._version[agent]))

    def _collect(self, moment: Moment) -> None:
        """Take all events of this time off the heap."""
        while self._heap and self._heap[0][0] == moment.time:
            _, event, agent, version = heapq.heappop(self._heap)
            if version != self._version[agent]:
                continue
            if event is Event.END:
                moment.ended.append(agent)
            elif event is Event.UPDATE:
                self._updating.append(agent)
            elif self.state[agent] is State.RETURNING:
                self._look_for_state(agent, moment)

    def _check_waiting(self, agents: set[int]) -> None:
        """Look which waiting agents have all messages, or will have them at a known time."""
        for agent in sorted(agents):
            if self.state[agent] is not State.WAITING:
                continue
            time = self._ready_at(agent)
            self._version[agent] += 1
            if time is None or agent in self._updating:
                continue
            if time <= self.now:
                self._updating.append(agent)
            else:
                heapq.heappush(self._heap, (time, Event.UPDATE, agent, self._version[agent]))

    def _ready_at(self, agent: int) -> int | None:
        """Return when all living neighbours' messages of this iteration have arrived; None if that is unknown."""
        ready, k, links = self.now, self.iteration[agent], self.links
        for link in self.inward[agent]:
            sender = links.senders[link]
            if not links.up[link] or self.state[sender] >= State.DOWN or self.joined[sender] > k:
                continue
            if not self._uses(link, k):
                continue
            if self.published[sender] < k:
                return None
            arrival = links.arrival(link, k)
            ready = max(ready, arrival or 0)  # a message that was lost is not waited for
        return ready

    # ---- agents and links that go and come

    def _apply_changes(self, moment: Moment) -> None:
        while self._change is not None and self._change.time_ns <= moment.time:
            change = self._change
            if change.what == "link":
                self._change_link(change.number, change.up)
            elif change.up and self.state[change.number] is State.DOWN:
                self._return(change.number, moment)
            elif not change.up and self.state[change.number] is not State.DOWN:
                self._leave(change.number)
            self._change = next(self._changes, None)
            self._taken_changes += 1

    def _change_link(self, link: int, up: bool) -> None:
        if up:
            self.links.up[link] = True
            return
        self.links.stop(link, self.now)
        self._check_waiting({self.links.receivers[link]})

    def _leave(self, agent: int) -> None:
        """Stop an agent: its iteration, and what it was sending, are lost."""
        if self.state[agent] in (State.WAITING, State.RETURNING):
            self._spend(agent, self.state[agent])
        self.state[agent], self.begun[agent] = State.DOWN, self.now
        self._version[agent] += 1
        for link in self.outward[agent]:
            self.links.cut(link, self.now)
        self._check_waiting({self.links.receivers[link] for link in self.outward[agent]})

    def _return(self, agent: int, moment: Moment) -> None:
        """Let an agent come back, with its own state or, by option, a neighbour's."""
        self._spend(agent, State.DOWN)
        self._version[agent] += 1
        living = [link for link in self.inward[agent] if self.state[self.links.senders[link]] < State.DOWN]
        for link in self.inward[agent]:
            self.links.lose_arrived(link, self.now)
        if self.waits and living:
            self.iteration[agent] = self.joined[agent] = 1 + max(self.published[self.links.senders[e]] for e in living)
        if self.bed.returning == "adopt" and living and not self.waits:
            self.state[agent], self.begun[agent] = State.RETURNING, self.now
            self._wake_later(agent)
        else:
            moment.returned.append(agent)
            self._start(agent, self.now)

    def _wake_later(self, agent: int) -> None:
        """Look again for a message to adopt when the next one may arrive."""
        times = [time for link in self.inward[agent] if (time := self.links.next_chance(link)) is not None]
        if times:
            self._version[agent] += 1
            heapq.heappush(self._heap, (max(self.now, min(times)), Event.WAKE, agent, self._version[agent]))

    def _look_for_state(self, agent: int, moment: Moment) -> None:
        """Adopt the state of the most advanced neighbour of whom a message has arrived."""
        for link in self.inward[agent]:
            self.links.take(link, self.now)
        held = [message for link in self.inward[agent] if (message := self.links.held[link]) is not None]
        if not held:
            self._wake_later(agent)
            return
        newest = max(held, key=lambda message: message.iteration)
        moment.adopted[agent] = newest
        self._spend(agent, State.RETURNING)
        self.iteration[agent], self.ends[agent] = newest.iteration, []
        self._start(agent, self.now)
