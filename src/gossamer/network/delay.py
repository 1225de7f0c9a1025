"""Delay models: the delay, in steps, of the message that arrives now on each link.

A model is pure. The caller keeps its state, a tensor, and passes the random generator. Index [i, k] is the message that
agent i receives from agent k. The engines ask for a delay per link, with `sample_list`. A model of your own need not
know of lists: `sample` draws a matrix, and the entries at the links are taken.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch

from gossamer.errors import UserError
from gossamer.network.links import Links
from gossamer.shapes import Bool, Int, Tensor

# A geometric delay has no largest value: its tail is cut off where it has at most this probability.
NEGLIGIBLE = 1e-6

LONGEST = 1_000_000  # steps: messages are kept that long, so memory runs out first

# Up to so many agents a random model draws a number for every pair, as it always has: runs keep their delays. A larger
# network has a draw per link only.
MOST_PAIRS_DRAWN = 512

Mask = Bool[Tensor, "..."]  # of the links: a matrix, or a list where `each_alike`
Sampled = tuple[Int[Tensor, "..."], Tensor]  # the delays, and the model's new state


def steps_until_negligible(probability: float) -> int:
    """Return the smallest m with probability^m <= 1e-6."""
    if probability <= 0.0:
        return 1
    # The slack keeps 0.1^6 at m = 6: the quotient of the logarithms may exceed 6 by a rounding error.
    return math.ceil(math.log(NEGLIGIBLE) / math.log(probability) - 1e-9)


def draws_listed(links: Links) -> bool:
    """Whether a random number is drawn for each link only, not for every pair."""
    return links.shape[0] > MOST_PAIRS_DRAWN


class Delay(ABC):
    """A delay model; see the subclasses."""

    covers_every_link: ClassVar[bool] = False  # True: the delays apply inside clusters too
    each_alike: ClassVar[bool] = False  # True: an entry's draws do not depend on its place, so a list of links will do

    @property
    @abstractmethod
    def largest(self) -> int:
        """The largest delay that `sample` can return."""

    @property
    def typical(self) -> int:
        """The largest delay, unless that is rare: a run must last longer."""
        return self.largest

    @property
    def num_values(self) -> float:
        """The number of different delays, if every link keeps its own; infinity if delays change."""
        return math.inf

    def start(self, links: Mask, generator: torch.Generator) -> Tensor:
        """Return the state before step 0; a model without memory has an empty one."""
        return torch.empty(0, dtype=torch.int64)

    @abstractmethod
    def sample(self, step: int, state: Tensor, links: Mask, generator: torch.Generator) -> Sampled:
        """Return the delay in steps of the message that arrives now, for every pair, and the new state."""

    def late_links(self, links: Mask) -> Mask:
        """Return the links on which a message can be late."""
        return links

    def check(self, links: Mask) -> None:  # noqa: B027 - most models fit any network
        """Raise UserError if the model does not fit this network."""

    def start_list(self, links: Links, generator: torch.Generator) -> Tensor:
        """Return the state before step 0 for these links."""
        if type(self).start is Delay.start:
            return torch.empty(0, dtype=torch.int64)
        return self.start(self._entries(links), generator)

    def sample_list(self, step: int, state: Tensor, links: Links, generator: torch.Generator) -> Sampled:
        """Return the delay of the message that arrives now on each link, and the new state."""
        delays, state = self.sample(step, state, self._entries(links), generator)
        return delays if delays.ndim == 1 else links.at(delays), state

    def late_list(self, links: Links) -> Bool[Tensor, " e"]:
        """Return which of these links can be late."""
        if type(self).late_links is Delay.late_links:
            return torch.ones(len(links), dtype=torch.bool)
        return links.at(self.late_links(links.mask))

    def check_list(self, links: Links) -> None:
        """Raise UserError if the model does not fit a network with these links."""
        if type(self).check is not Delay.check:
            self.check(links.mask)

    def _entries(self, links: Links) -> Mask:
        """Return the entries that a draw is for: those of a matrix, or of a list in a large network."""
        if self.each_alike and draws_listed(links):
            return torch.ones(len(links), dtype=torch.bool)
        return links.mask

    @abstractmethod
    def spec(self) -> str:
        """Return the text that `parse_delay` reads this model from."""

    def as_json(self) -> int | str:
        """Return a plain value for reports: the number of a fixed delay, else the text."""
        text = self.spec()
        return int(text) if text.isdecimal() else text


@dataclass(frozen=True)
class Fixed(Delay):
    """The same delay for every message."""

    steps: int

    def __post_init__(self) -> None:
        check_delay("delay", self.steps)

    @property
    def largest(self) -> int:
        return self.steps

    @property
    def num_values(self) -> float:
        return 1.0

    def sample(self, step: int, state: Tensor, links: Mask, generator: torch.Generator) -> Sampled:
        return torch.full(links.shape, self.steps, dtype=torch.int64), state

    def sample_list(self, step: int, state: Tensor, links: Links, generator: torch.Generator) -> Sampled:
        return torch.full((len(links),), self.steps, dtype=torch.int64), state

    def spec(self) -> str:
        return str(self.steps)


@dataclass(frozen=True, eq=False)
class PerLink(Delay):
    """A constant delay per link: `matrix[i, k]` steps for messages from k to i."""

    matrix: Int[Tensor, "n n"]
    source: str = "matrix"  # "matrix:FILE" if read from a file

    covers_every_link: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_delay("entry of the delay matrix", int(self.matrix.min()))

    @property
    def largest(self) -> int:
        off_diagonal = ~torch.eye(len(self.matrix), dtype=torch.bool)
        return int((self.matrix * off_diagonal).max())

    @property
    def num_values(self) -> float:
        return float(len(self.matrix.unique()))

    def sample(self, step: int, state: Tensor, links: Mask, generator: torch.Generator) -> Sampled:
        return self.matrix.to(torch.int64), state

    def sample_list(self, step: int, state: Tensor, links: Links, generator: torch.Generator) -> Sampled:
        return links.at(self.matrix).to(torch.int64), state

    def late_links(self, links: Mask) -> Mask:
        return links & (self.matrix > 0)

    def check(self, links: Mask) -> None:
        if self.matrix.shape != links.shape:
            raise UserError(
                f"delay matrix has shape {tuple(self.matrix.shape)} but the network has {len(links)} agents; "
                "give one row and one column for each agent"
            )

    def spec(self) -> str:
        return self.source


@dataclass(frozen=True)
class Uniform(Delay):
    """A delay drawn uniformly from low..high for every message, both included."""

    low: int
    high: int

    each_alike: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_delay("lowest delay", self.low)
        if self.low > self.high:
            raise UserError(f"uniform delay from {self.low} to {self.high} is empty; give the lower number first")

    @property
    def largest(self) -> int:
        return self.high

    def sample(self, step: int, state: Tensor, links: Mask, generator: torch.Generator) -> Sampled:
        return torch.randint(self.low, self.high + 1, links.shape, generator=generator), state

    def spec(self) -> str:
        return f"uniform:{self.low},{self.high}"


@dataclass(frozen=True)
class Geometric(Delay):
    """Failures before the first success: P(d = j) = p (1 - p)^j, cut where the tail falls to 1e-6."""

    p: float

    each_alike: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_probability("p of a geometric delay", self.p)

    @property
    def largest(self) -> int:
        return 0 if self.p == 1.0 else steps_until_negligible(1.0 - self.p)

    @property
    def typical(self) -> int:
        return round((1.0 - self.p) / self.p)

    def sample(self, step: int, state: Tensor, links: Mask, generator: torch.Generator) -> Sampled:
        if self.p == 1.0:
            return torch.zeros(links.shape, dtype=torch.int64), state
        # torch counts the successful trial too.
        trials = torch.empty(links.shape, dtype=torch.float64).geometric_(self.p, generator=generator)
        return (trials - 1).clamp(max=self.largest).to(torch.int64), state

    def spec(self) -> str:
        return f"geometric:{self.p!r}"


@dataclass(frozen=True)
class Gilbert(Delay):
    """Gilbert's channel: a link turns bad with probability to_bad per step, and good again with to_good.

    Directed links are independent and start from the stationary distribution, in which the share
    to_bad / (to_bad + to_good) is bad. The state is 1 for a bad link.
    """

    to_bad: float
    to_good: float
    bad_delay: int
    good_delay: int = 0

    each_alike: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_probability("probability of turning bad", self.to_bad)
        check_probability("probability of turning good", self.to_good)
        check_delay("delay of a bad link", self.bad_delay)
        check_delay("delay of a good link", self.good_delay)

    @property
    def largest(self) -> int:
        return max(self.bad_delay, self.good_delay)

    def start(self, links: Mask, generator: torch.Generator) -> Tensor:
        share_bad = self.to_bad / (self.to_bad + self.to_good)
        return (torch.rand(links.shape, generator=generator, dtype=torch.float64) < share_bad).to(torch.int64)

    def sample(self, step: int, state: Tensor, links: Mask, generator: torch.Generator) -> Sampled:
        bad = state == 1
        delays = torch.where(bad, self.bad_delay, self.good_delay)
        draw = torch.rand(links.shape, generator=generator, dtype=torch.float64)
        moved = torch.where(bad, draw >= self.to_good, draw < self.to_bad)
        return delays, moved.to(torch.int64)

    def spec(self) -> str:
        good = f",{self.good_delay}" if self.good_delay else ""
        return f"gilbert:{self.to_bad!r},{self.to_good!r},{self.bad_delay}{good}"


def check_delay(name: str, steps: int) -> None:
    """Raise UserError for a delay that is negative or too large."""
    if steps < 0:
        raise UserError(f"{name} must be 0 steps or more, got {steps}; use 0 for a link that is never late")
    if steps > LONGEST:
        raise UserError(f"{name} must be at most {LONGEST} steps, got {steps}; use a smaller number")


def check_probability(name: str, value: float) -> None:
    """Raise UserError for a probability outside (0, 1]."""
    if not 0.0 < value <= 1.0:
        raise UserError(f"{name} must lie above 0 and at most at 1, got {value}; try 0.1")
