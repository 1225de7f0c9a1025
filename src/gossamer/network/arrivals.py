"""The age of the newest message that each agent holds from each neighbour, step by step.

At step t, agent i receives the message that k sent at step t - d, where d is the delay drawn for the link at step t. It
may be older than a message that i already holds. Agent i keeps the newest:

    newest_ik(t) = max(newest_ik(t - 1), t - d_ik(t)),    age_ik(t) = t - newest_ik(t)

So an age grows by at most one per step. For independent delays P(age > a) = prod_{j=0..a} P(d > j).

With a schedule of the graph nothing is sent at a step over a link that is not in use at it, and nothing is held of it.
"""

from collections.abc import Mapping

import torch

from gossamer.errors import UserError
from gossamer.network.delay import draws_listed, steps_until_negligible
from gossamer.network.network import Network
from gossamer.network.rounds import Rounds
from gossamer.seeding import generator
from gossamer.shapes import Bool, Float, Int, Tensor

NOTHING = -1  # the age if an agent holds no message
_NEVER = -(2**40)  # the step of a message that never arrived: below every step, far from overflow
_LATER_THAN_ALL = 2**40  # the arrival of a message that was lost or not sent


class Arrivals:
    """The arrivals of one run: a function of the network, the seed and the purpose, advanced step by step.

    If agents send only at multiples of a period, delay and loss are drawn when a message is sent. After a loss the
    receiver waits one period for the next message.
    """

    def __init__(
        self,
        network: Network,
        seed: int,
        purpose: str = "delay",
        *,
        forget: bool = True,
        period: int = 1,
        period_inside: int | None = None,
    ) -> None:
        """Start before step 0. Two purposes draw independently.

        After many losses in a row a message may be older than the senders keep. With `forget` it is dropped, else it
        gets the largest age that is kept. `period_inside` is the period of the links without delay and loss.
        """
        self.network = network
        self.seed = seed
        self.purpose = purpose
        self._forget = forget
        self._longest = period
        self._links = network.pattern
        self.rounds = Rounds.of(network, seed)
        self._period = torch.where(network.spared_values, period if period_inside is None else period_inside, period)
        self._state = network.delay.start_list(self._links, generator(seed, f"{purpose}-start"))
        first = 0 if network.startup == "min" else _NEVER
        self._newest = torch.full((len(self._links),), first, dtype=torch.int64)
        self._under_way: dict[int, Tensor] = {}  # step of sending -> step of arrival, for every link

    @property
    def largest_age(self) -> int:
        """The largest age that `advance` returns: the number of past messages that senders must keep."""
        losses = steps_until_negligible(self.network.loss) if self.network.loss > 0 else 0
        largest = max(self.network.delay.largest + losses * self._longest, self.network.reliable_delay)
        gap = self.rounds.longest_gap * self._longest if self.rounds is not None and largest + self._longest > 1 else 0
        return largest + gap + self._longest - 1

    def advance(self, step: int) -> Int[Tensor, "n n"]:
        """Return the ages at this step as a matrix, NOTHING where there is no link; see `advance_list`."""
        return self._links.matrix(self.advance_list(step), NOTHING)

    def advance_list(self, step: int) -> Int[Tensor, " e"]:
        """Return the age on each link of the network's pattern: 0 is current, NOTHING is no message.

        Call this or `advance` once per step, in order.
        """
        network = self.network
        delays, kept = self._draw(step)
        sent = step - delays
        at_once = kept & ((self._period == 1) | (sent < 0))  # messages from before step 0 are drawn as they arrive
        if network.startup != "full":
            at_once = at_once & (sent >= 0)
        if self.rounds is not None:
            at_once = at_once & self.rounds.used_when(sent)
        self._newest = torch.maximum(self._newest, torch.where(at_once, sent - sent % self._period, _NEVER))
        if self._longest > 1:
            self._move(step, delays, kept)
        deaf = None if self.rounds is None else self.rounds.graph(step).deaf
        if deaf is not None:
            self._newest = torch.where(deaf, _NEVER, self._newest)
        ages = step - self._newest
        if not self._forget:
            ages = torch.where(self._newest > _NEVER, ages.clamp(max=self.largest_age), ages)
        held = ages <= self.largest_age
        return torch.where(held if self.rounds is None else held & self.rounds.used(step), ages, NOTHING)

    def _draw(self, step: int) -> tuple[Int[Tensor, " e"], Bool[Tensor, " e"]]:
        """Return the delays, and which messages are not lost."""
        network, draws = self.network, generator(self.seed, self.purpose, step)
        delays, self._state = network.delay.sample_list(step, self._state, self._links, draws)
        if not network.delay.covers_every_link:
            delays = torch.where(network.spared_values, network.reliable_delay, delays)
        delays = delays.clamp(min=network.reliable_delay)  # no message is newer than a reliable neighbour's
        if network.loss == 0:
            return delays, torch.ones_like(network.spared_values)
        return delays, (self._chances(draws) >= network.loss) | network.spared_values

    def _chances(self, draws: torch.Generator) -> Float[Tensor, " e"]:
        """Return a uniform number for each link."""
        links = self._links
        if draws_listed(links):
            return torch.rand(len(links), generator=draws, dtype=torch.float64)
        return links.at(torch.rand(links.shape, generator=draws, dtype=torch.float64))

    def _move(self, step: int, delays: Int[Tensor, " e"], kept: Bool[Tensor, " e"]) -> None:
        """Send the periodic messages, and receive those that arrive at this step."""
        sending = kept & (self._period > 1) & (step % self._period == 0)
        if self.rounds is not None:
            sending = sending & self.rounds.used(step)
        self._under_way[step] = torch.where(sending, step + delays, _LATER_THAN_ALL)
        for sent, arrival in self._under_way.items():
            self._newest = torch.maximum(self._newest, torch.where(arrival <= step, sent, _NEVER))
        self._under_way = {
            sent: arrival
            for sent, arrival in self._under_way.items()
            if bool(((arrival > step) & (arrival < _LATER_THAN_ALL)).any())
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state after the last step, for `load_state_dict`."""
        state = {"newest": self._newest.clone(), "delay": self._state.clone()}
        return state | {f"under_way.{sent}": arrival.clone() for sent, arrival in self._under_way.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a `state_dict`. The draws need no state: they depend on the step alone."""
        newest = self._links.listed(state["newest"], self._newest)
        if newest.shape != self._newest.shape or state["delay"].shape != self._state.shape:
            raise UserError(
                f"the saved arrivals are for {len(newest)} links or another kind of delay; "
                f"resume with the network they came from, not one of {len(self._newest)} links"
            )
        self._newest, self._state = newest.clone(), state["delay"].clone()
        self._under_way = {
            int(name.removeprefix("under_way.")): self._links.listed(value, newest).clone()
            for name, value in state.items()
            if name.startswith("under_way.")
        }
