"""Delay models: the delay, in steps, of the message that arrives now on each link.

A model is pure. The caller keeps its state, a tensor, and passes the random generator. Index [i, k] is the message that
agent i receives from agent k.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch

from gossamer.errors import UserError
from gossamer.shapes import Bool, Int, Tensor

# A geometric delay has no largest value: its tail is cut off where it has at most this probability.
NEGLIGIBLE = 1e-6

LONGEST = 1_000_000  # steps: messages are kept that long, so memory runs out first

Links = Bool[Tensor, "n n"]
Sampled = tuple[Int[Tensor, "n n"], Tensor]  # the delays, and the model's new state


def steps_until_negligible(probability: float) -> int:
    """Return the smallest m with probability^m <= 1e-6."""
    if probability <= 0.0:
        return 1
    # The slack keeps 0.1^6 at m = 6: the quotient of the logarithms may exceed 6 by a rounding error.
    return math.ceil(math.log(NEGLIGIBLE) / math.log(probability) - 1e-9)


class Delay(ABC):
    """A delay model; see the subclasses."""

    covers_every_link: ClassVar[bool] = False  # True: the delays apply inside clusters too

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

    def start(self, links: Links, generator: torch.Generator) -> Tensor:
        """Return the state before step 0; a model without memory has an empty one."""
        return torch.empty(0, dtype=torch.int64)

    @abstractmethod
    def sample(self, step: int, state: Tensor, links: Links, generator: torch.Generator) -> Sampled:
        """Return the delay in steps of the message that arrives now, for every pair, and the new state."""

    def late_links(self, links: Links) -> Links:
        """Return the links on which a message can be late."""
        return links

    def check(self, links: Links) -> None:  # noqa: B027 - most models fit any network
        """Raise UserError if the model does not fit this network."""

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

    def sample(self, step: int, state: Tensor, links: Links, generator: torch.Generator) -> Sampled:
        return torch.full(links.shape, self.steps, dtype=torch.int64), state

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

    def sample(self, step: int, state: Tensor, links: Links, generator: torch.Generator) -> Sampled:
        return self.matrix.to(torch.int64), state

    def late_links(self, links: Links) -> Links:
        return links & (self.matrix > 0)

    def check(self, links: Links) -> None:
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

    def __post_init__(self) -> None:
        check_delay("lowest delay", self.low)
        if self.low > self.high:
            raise UserError(f"uniform delay from {self.low} to {self.high} is empty; give the lower number first")

    @property
    def largest(self) -> int:
        return self.high

    def sample(self, step: int, state: Tensor, links: Links, generator: torch.Generator) -> Sampled:
        return torch.randint(self.low, self.high + 1, links.shape, generator=generator), state

    def spec(self) -> str:
        return f"uniform:{self.low},{self.high}"


@dataclass(frozen=True)
class Geometric(Delay):
    """Failures before the first success: P(d = j) = p (1 - p)^j, cut where the tail falls to 1e-6."""

    p: float

    def __post_init__(self) -> None:
        check_probability("p of a geometric delay", self.p)

    @property
    def largest(self) -> int:
        return 0 if self.p == 1.0 else steps_until_negligible(1.0 - self.p)

    @property
    def typical(self) -> int:
        return round((1.0 - self.p) / self.p)

    def sample(self, step: int, state: Tensor, links: Links, generator: torch.Generator) -> Sampled:
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

    def __post_init__(self) -> None:
        check_probability("probability of turning bad", self.to_bad)
        check_probability("probability of turning good", self.to_good)
        check_delay("delay of a bad link", self.bad_delay)
        check_delay("delay of a good link", self.good_delay)

    @property
    def largest(self) -> int:
        return max(self.bad_delay, self.good_delay)

    def start(self, links: Links, generator: torch.Generator) -> Tensor:
        share_bad = self.to_bad / (self.to_bad + self.to_good)
        return (torch.rand(links.shape, generator=generator, dtype=torch.float64) < share_bad).to(torch.int64)

    def sample(self, step: int, state: Tensor, links: Links, generator: torch.Generator) -> Sampled:
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


@dataclass(frozen=True, eq=False)
class Scaled(Delay):
    """The delays of another model times a whole number."""

    base: Delay
    factor: int

    @property
    def covers_every_link(self) -> bool:  # type: ignore[override]
        return self.base.covers_every_link

    @property
    def largest(self) -> int:
        return self.base.largest * self.factor

    @property
    def typical(self) -> int:
        return self.base.typical * self.factor

    @property
    def num_values(self) -> float:
        return self.base.num_values

    def start(self, links: Links, generator: torch.Generator) -> Tensor:
        return self.base.start(links, generator)

    def sample(self, step: int, state: Tensor, links: Links, generator: torch.Generator) -> Sampled:
        delays, state = self.base.sample(step, state, links, generator)
        return delays * self.factor, state

    def late_links(self, links: Links) -> Links:
        return self.base.late_links(links)

    def check(self, links: Links) -> None:
        self.base.check(links)

    def spec(self) -> str:
        return self.base.spec()

    def as_json(self) -> str:
        return f"{self.base.spec()} x {self.factor} steps"
