"""Delays of the network's own model, in iterations, on top of a real transport; and lock step.

In lock step an agent waits, at every iteration, for the message that each neighbour sends at the same one, and is then
shown the message whose age the model draws: all draw from one seed, so that processes do what the simulator does.
Without it no agent waits: a message is shown after as many own iterations as the model draws.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from gossamer.network import NOTHING, Arrivals
from gossamer.runtime.transport.base import Letter, Transport, Wrapper, always
from gossamer.shapes import Int, Tensor

POLL = 1e-4  # seconds between two looks for a message that is waited for


@dataclass
class _DelayedLink:
    """One peer's messages that were seen, the newest last."""

    letters: deque[tuple[int, Letter]]  # with this agent's iteration at which each was first seen
    lost: bool = False  # timed out: not waited for until there is news
    order: tuple[int, int] = (-1, -1)  # of the newest


class SimulatedDelays(Wrapper):
    """Delays messages as the arrivals prescribe."""

    def __init__(
        self,
        inner: Transport,
        arrivals: Arrivals,
        rank: int,
        peers: Sequence[int],
        *,
        lockstep: bool,
        sends: Callable[[int], bool],
        deadline: float,
    ) -> None:
        """Wrap a transport. `sends` says at which iterations agents send, `deadline` how long to wait for a peer."""
        super().__init__(inner)
        self.rank, self.lockstep, self.sends, self.deadline = rank, lockstep, sends, deadline
        self._arrivals = arrivals
        self.hurried = False  # True ends all waits
        depth = arrivals.largest_age + 1
        self._links = {peer: _DelayedLink(deque(maxlen=depth)) for peer in peers}
        self._ticks = 0
        pattern = arrivals.network.pattern
        self.ages: Int[Tensor, " e"] = torch.full((len(pattern),), NOTHING)  # as drawn for all agents
        numbers = pattern.find(torch.full((len(peers),), rank), torch.tensor(list(peers), dtype=torch.int64))
        self._number = dict(zip(peers, numbers.tolist(), strict=True))  # of each peer's link among all

    def tick(self, step: int) -> None:
        """Take new messages, in lock step after waiting for them, and draw how late each is shown."""
        self.inner.tick(step)
        begun = time.monotonic()
        for peer, link in self._links.items():
            if self.lockstep and self.sends(step):
                self._wait(peer, link, step, begun)
            elif not self.lockstep:
                self._take(link, self.inner.latest(peer))
        # Agents that do not wait are not at the same iteration, and need not draw alike.
        now = step if self.lockstep else self._ticks
        while self._ticks <= now:
            self.ages = self._arrivals.advance_list(self._ticks)
            self._ticks += 1
        self._now, self._step = now, step

    def _wait(self, peer: int, link: _DelayedLink, step: int, begun: float) -> None:
        """Take the message of this iteration; a peer that is ahead, or was given up, is not waited for.

        All are waited for from the same moment on. A peer that itself waits for a dead one comes a deadline late, so
        one that has been heard of since it was given up gets twice the time.
        """
        newest = self.inner.latest(peer)
        if link.lost and newest is not None and newest.stamp.order > link.order:
            link.lost = False  # there is news
        until = begun + (0 if link.lost else 2 * self.deadline if newest is not None else self.deadline)
        while True:
            newest = self.inner.latest(peer)  # before `at`: the other way round, a peer may pass in between unseen
            letter = self.inner.at(peer, step)
            ahead = newest is not None and newest.stamp.sequence > step
            if letter is not None or ahead or time.monotonic() >= until or self.hurried:
                break
            time.sleep(POLL)
        link.lost = letter is None and not ahead
        self._take(link, letter or newest)

    def _take(self, link: _DelayedLink, letter: Letter | None) -> None:
        """Keep a copy of a new message."""
        if letter is None or letter.stamp.order <= link.order:
            return
        copied = replace(letter, payload=letter.payload.clone(), intact=always)
        if not letter.intact():
            self.counts["torn"] += 1
            return
        link.order = letter.stamp.order
        link.letters.append((self._ticks, copied))

    def latest(self, peer: int) -> Letter | None:
        """Return the message that the delay model shows now."""
        link, age = self._links[peer], int(self.ages[self._number[peer]])
        if age == NOTHING:
            return None
        if not self.lockstep:
            shown = next((letter for seen, letter in reversed(link.letters) if self._now - seen >= age), None)
            return shown if shown is None or not age else replace(shown, arrived=time.monotonic_ns())
        wanted = max(self._step - age, 0)
        found = (letter for _, letter in reversed(link.letters) if letter.stamp.sequence == wanted)
        letter = next(found, None)
        return None if letter is None else replace(letter, age=age)
