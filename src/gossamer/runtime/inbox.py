"""Makes a rule's inbox and weights from the messages that an agent holds: current, late or silent."""

from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache
from itertools import compress
from operator import and_

import torch

from gossamer.algorithms import Algorithm, Inbox, Late, Past, Place, Weights
from gossamer.algorithms.message_parts import aliases, parts_sent
from gossamer.algorithms.steps import weigh
from gossamer.network import NOTHING, LinkMatrix
from gossamer.runtime.received_messages import HeldAges, ReceivedMessages
from gossamer.shapes import Bool, Float, Int, Shaped, Tensor
from gossamer.state.history import Ring, SlidingDrift

MOST_CACHED = 256  # small tensors for so many sets of neighbours are kept

Flags = tuple[bool, ...]  # one a neighbour


class OwnPast:
    """The past that a rule needs: own messages by age, and sums over the states since then."""

    def __init__(self, algorithm: Algorithm, x: Float[Tensor, "1 d"], depth: int, *, plain: bool) -> None:
        self._alias = aliases(plain=plain)
        self._names = algorithm.message
        self._rings: dict[str, Ring] = {}
        self._drift: SlidingDrift | None = None
        self._first: int | None = None
        if algorithm.past is Past.NONE:
            return
        kept = dict.fromkeys(("x", *parts_sent(algorithm.message, plain=plain)))
        self._rings = {name: Ring(depth, x[:, :1] if name in algorithm.numbers else x) for name in kept}
        for name in algorithm.totals & set(kept):
            self._rings[name] = Ring(depth, x.double())
        if algorithm.past is Past.WINDOW:
            self._drift = SlidingDrift(self._rings["x"])

    def clear(self) -> None:
        """Forget all."""
        self._first = None
        for ring in self._rings.values():
            ring.load_state_dict({})
        if self._drift is not None:
            self._drift = SlidingDrift(self._rings["x"])

    def push(self, step: int, vectors: Mapping[str, Float[Tensor, "1 _"]]) -> None:
        """Keep the vectors of this iteration."""
        self._first = step if self._first is None else self._first
        for name, ring in self._rings.items():
            ring.push(step, vectors[name])

    def previous(self, step: int) -> Float[Tensor, "1 d"] | None:
        """Return the state of the iteration before; at the first, its own."""
        if not self._rings:
            return None
        assert self._first is not None
        return self._rings["x"].at(max(step - 1, self._first))

    def message(self, step: int) -> dict[str, Float[Tensor, "1 _"]]:
        """Return what was sent at an iteration that is still kept."""
        if not self._rings:
            return {}
        assert self._first is not None
        at = max(step, self._first)
        return {name: self._rings[self._alias.get(name, name)].at(at) for name in (*self._names, "x")}

    def drifts(self, step: int, ages: Iterable[int]) -> Mapping[int, Float[Tensor, "1 d"]]:
        """Return the sum over r < age of x(step - age + r) - x(step - age), for each age."""
        return {} if self._drift is None else self._drift.at(step, ages)


class InboxMaker:
    """Makes one agent's inbox. All its groups are rows of the same tensors, told apart by their weights."""

    def __init__(
        self,
        algorithm: Algorithm,
        place: Place,
        received: ReceivedMessages,
        past: OwnPast,
        *,
        tolerance: int,
        oldest: int,
        plain: bool,
    ) -> None:
        """`tolerance` is the largest age that counts as current, `oldest` the number of own past states kept."""
        self.algorithm, self.place, self.received, self.past = algorithm, place, received, past
        self.tolerance, self.oldest = tolerance, oldest
        self.heard: frozenset[int] = frozenset()  # senders of current messages at the last step
        self.everyone: Int[Tensor, " e"] | None = None  # the ages on all links of the network, in lock step
        assert place.senders is not None
        self._rank, self._senders = int(place.agents), place.senders.tolist()
        starts = place.network.pattern.starts
        self._mine = slice(int(starts[self._rank]), int(starts[self._rank + 1]))  # the agent's own links among all
        self._w = place.network.link_weights.values[self._mine]
        self._alias = aliases(plain=plain)
        # Small tensors take long to make, and a step needs the same few again and again.
        self._mask = lru_cache(MOST_CACHED)(self._make_mask)
        self._late_weights = lru_cache(MOST_CACHED)(self._make_late_weights)
        self._weights = lru_cache(MOST_CACHED)(self._make_weights)

    def make(self, t: int, vectors: Mapping[str, Float[Tensor, "1 _"]], held: HeldAges) -> tuple[Inbox, Weights]:
        """Return the inbox of iteration t, at which the agent itself has sent these vectors, and its weights."""
        x, names, new = vectors["x"], self.algorithm.message, tuple(held.new)
        ages = self._forget(held.ages)
        reliable = tuple(0 <= age <= self.tolerance for age in ages)
        late = tuple(age > self.tolerance for age in ages) if self.algorithm.hears_late else (False,) * len(ages)
        self.heard = frozenset(compress(self._senders, reliable))
        received = self.received.messages
        message = {name: received[self._alias.get(name, name)] for name in names}
        groups = {age: tuple(other == age for other in ages) for age in sorted(set(compress(ages, late)))}
        drifts = self.past.drifts(t, groups)
        steps = None if held.sender_steps == held.ages else self._of_links(torch.tensor(held.sender_steps).to(x))
        of_age = tuple(
            Late(
                age,
                self._late_weights(group),
                message,
                self.past.message(t - age),
                drifts.get(age),
                self._both(new, group),
                steps,
            )
            for age, group in groups.items()
        )
        # A rule whose messages hold no state asks for none.
        fresh = message["x"] if "x" in message else x[:1, :1].expand(len(self._senders), x.shape[1])
        own = {name: vectors[self._alias.get(name, name)] for name in names}
        inbox = Inbox(fresh, of_age, message, own, self._both(new, reliable))
        return inbox, self._weights(reliable, late, self._links_elsewhere())

    def _forget(self, ages: list[int]) -> list[int]:
        """Forget messages older than the past states that this agent keeps, except totals."""
        if self.algorithm.totals:
            return [min(age, self.oldest) for age in ages]
        return [age if age <= self.oldest else NOTHING for age in ages]

    def _both(self, new: Flags, group: Flags) -> LinkMatrix:
        """Return the neighbours in both sets."""
        return self._mask(tuple(map(and_, new, group)))

    def _make_mask(self, flags: Flags) -> LinkMatrix:
        return self._of_links(torch.tensor(flags, dtype=torch.bool, device=self.place.share.device))

    def _make_late_weights(self, group: Flags) -> LinkMatrix:
        return self._of_links((self._w * torch.tensor(group)).to(self.place.share))

    def _of_links(self, values: Shaped[Tensor, " n"]) -> LinkMatrix:
        return LinkMatrix(self.place.links, values)

    def _links_elsewhere(self) -> Hashable:
        """Return what tells apart the current links of the other agents."""
        if self.everyone is not None:
            return self.everyone.numpy().tobytes()
        return tuple(map(self.received.heard_by, self._senders))

    def _make_weights(self, reliable: Flags, late: Flags, links_elsewhere: Hashable) -> Weights:
        """Return this agent's row of the weights; `links_elsewhere` is part of the cache's key."""
        current = self._current_links(torch.tensor(reliable, dtype=torch.bool))
        all_late = torch.zeros_like(current)
        all_late[self._mine] = torch.tensor(late, dtype=torch.bool)
        return weigh(self.place.network, current, all_late).to(self.place.share).of(self.place)

    def _current_links(self, reliable: Bool[Tensor, " n"]) -> Bool[Tensor, " e"]:
        """Return the current links: its own as measured, a neighbour's as reported, and all the others.

        The clipping weights of a link depend on how many current links both of its ends have.
        """
        links = self.place.network.pattern
        if self.everyone is not None:
            current = (self.everyone >= 0) & (self.everyone <= self.tolerance)
        else:
            current = torch.ones(len(links), dtype=torch.bool)
            for sender in self._senders:
                if (told := self.received.heard_by(sender)) is not None:
                    current[links.starts[sender] : links.starts[sender + 1]] = torch.tensor(
                        [peer in told for peer in links.senders_of(sender)], dtype=torch.bool
                    )
        current[self._mine] = reliable
        return current
