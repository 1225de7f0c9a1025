"""From what an agent holds of its neighbours to the inbox and the weights of a rule: current, late, or silent."""

from collections.abc import Mapping

import torch

from gossamer.algorithms import Algorithm, Inbox, Late, Place, Weights
from gossamer.algorithms.parts import aliases
from gossamer.algorithms.weighing import weigh
from gossamer.network import NOTHING
from gossamer.runtime.past import OwnPast
from gossamer.runtime.reception import Held, Reception
from gossamer.shapes import Bool, Float, Int, Tensor

MOST_KEPT = 256  # weights for so many sets of current links are kept


class Sorting:
    """Makes one agent's inbox. All its groups are rows of the same tensors, told apart by their weights."""

    def __init__(
        self,
        algorithm: Algorithm,
        place: Place,
        reception: Reception,
        past: OwnPast,
        *,
        tolerance: int,
        oldest: int,
        plain: bool,
    ) -> None:
        """`tolerance` is the largest age that counts as current, `oldest` the largest of which the own past is kept."""
        self.algorithm, self.place, self.reception, self.past = algorithm, place, reception, past
        self.tolerance, self.oldest = tolerance, oldest
        self.heard: frozenset[int] = frozenset()  # whose messages were current at the last step
        self.everyone: Int[Tensor, "all all"] | None = None  # the ages on all links, in lock step
        assert place.senders is not None
        self._rank, self._senders = int(place.agents), place.senders.tolist()
        self._w = place.network.W[self._rank, self._senders]
        self._alias = aliases(plain=plain)
        self._weighed: dict[tuple[bytes, bytes], Weights] = {}

    def sort(self, t: int, vectors: Mapping[str, Float[Tensor, "1 _"]], held: Held) -> tuple[Inbox, Weights]:
        """Return the inbox of iteration t, at which the agent itself has sent these vectors, and its weights."""
        x, names = vectors["x"], self.algorithm.message
        ages, new = self._kept(torch.tensor(held.ages, dtype=torch.int64)), torch.tensor(held.new, dtype=torch.bool)
        reliable = (ages >= 0) & (ages <= self.tolerance)
        late = (ages > self.tolerance) & self.algorithm.hears_late
        self.heard = frozenset(
            sender for sender, current in zip(self._senders, reliable.tolist(), strict=True) if current
        )
        received = self.reception.messages
        message = {name: received[self._alias.get(name, name)] for name in names}
        groups = {age: late & (ages == age) for age in sorted(set(ages[late].tolist()))}
        drifts = self.past.drifts(t, groups)
        of_age = tuple(
            Late(
                age,
                (self._w * group)[None].to(x),
                message,
                self.past.message(t - age),
                drifts.get(age),
                (new & group)[None].to(x.device),
            )
            for age, group in groups.items()
        )
        # A rule whose messages hold no state asks for none.
        fresh = message.get("x", x[:1, :1].expand(len(self._senders), x.shape[1]))
        own = {name: vectors[self._alias.get(name, name)] for name in names}
        inbox = Inbox(fresh, of_age, message, own, (new & reliable)[None].to(x.device))
        return inbox, self._weights(reliable, late).to(x)

    def _kept(self, ages: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        """Forget what is older than the own past, but for totals, which are never forgotten."""
        if self.algorithm.totals:
            return ages.clamp(max=self.oldest)
        return torch.where(ages <= self.oldest, ages, NOTHING)

    def _weights(self, reliable: Bool[Tensor, " n"], late: Bool[Tensor, " n"]) -> Weights:
        """Return this agent's row of the weights."""
        current = self._current_links(reliable)
        key = (current.numpy().tobytes(), late.numpy().tobytes())
        if key not in self._weighed:
            if len(self._weighed) == MOST_KEPT:
                self._weighed.clear()
            all_late = torch.zeros_like(current)
            all_late[self._rank, self._senders] = late
            whole, row = weigh(self.place.network, current, all_late), slice(self._rank, self._rank + 1)
            self._weighed[key] = Weights(
                own=whole.own[row],
                fresh=whole.fresh[row, self._senders],
                mass=whole.mass[row],
                clip_own=whole.clip_own[row],
                clip_fresh=whole.clip_fresh[row, self._senders],
            )
        return self._weighed[key]

    def _current_links(self, reliable: Bool[Tensor, " n"]) -> Bool[Tensor, "all all"]:
        """Return which links are current: the own as seen, a neighbour's as it said, others as if all were.

        The clipping weights of a link depend on how many current links both of its ends have.
        """
        links = self.place.network.links
        if self.everyone is not None:
            current = (self.everyone >= 0) & (self.everyone <= self.tolerance)
        else:
            current = links.clone()
            for sender in self._senders:
                if (told := self.reception.heard_by(sender)) is not None:
                    current[sender] = False
                    current[sender, list(told)] = True
        current[self._rank] = False
        current[self._rank, self._senders] = reliable
        return current & links
