"""The tradeoff parameter theta of PC-ASGD (Algorithm 1, line 8), except for the PV criterion.

| text                      | theta_t                                               |
|---------------------------|-------------------------------------------------------|
| auto                      | of each message by its age, see `ByAge`               |
| auto:0.5                  | half of that                                          |
| kalman                    | of each message by hindsight (hindsight.py)           |
| 0.3                       | the constant 0.3                                      |
| linear:0,0.5,1000         | from 0 to 0.5 over the first 1000 steps, then 0.5     |
| piecewise:0=0.3,500=0.7   | 0.3 from step 0, 0.7 from step 500                    |
| bernoulli:0.3             | 1 with probability 0.3, else 0                        |
| uniform                   | uniform in [0, 1]                                     |
| pv                        | 0 or 1 by the criterion of Algorithm 2 (pc_asgd.py);  |
|                           | with criterion=hindsight 0 or auto                    |
"""

import enum
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from gossamer.algorithms.matched import GAINS, largest_eigenvalue, stability_limit
from gossamer.errors import UserError, read_number, read_whole, unknown_name
from gossamer.network import Network
from gossamer.shapes import Float, Tensor

AUTO, KALMAN = "auto", "kalman"
TINY = 1e-12  # for networks on which nothing can be late
EXAMPLES = "auto, 0.3, pv, bernoulli:0.3, uniform, linear:0,0.5,1000 or piecewise:0=0.3,500=0.7"


class Hindsight(enum.Enum):
    """What past predictions decide.

    Attributes:
        NONE: nothing.
        GAIN: each neighbour's theta, as the gain of a Kalman filter.
        CHOICE: whether an agent predicts.
    """

    NONE = "none"
    GAIN = "gain"
    CHOICE = "choice"


class ThetaPolicy(ABC):
    """theta of each agent at step t; a random policy uses one uniform number `u` per agent."""

    draws: ClassVar[bool] = False

    @abstractmethod
    def at(self, t: int, u: Float[Tensor, " a"]) -> Float[Tensor, " a"]:
        """Return theta_t of each agent."""


@dataclass(frozen=True)
class Piecewise(ThetaPolicy):
    """Constant on each piece; one piece is a constant."""

    pieces: tuple[tuple[int, float], ...]

    def at(self, t: int, u: Float[Tensor, " a"]) -> Float[Tensor, " a"]:
        value = next((value for start, value in reversed(self.pieces) if start <= t), self.pieces[0][1])
        return u.new_full(u.shape, value)


@dataclass(frozen=True)
class Linear(ThetaPolicy):
    """Linear from one value to another over a number of steps, then constant."""

    first: float
    last: float
    steps: int

    def at(self, t: int, u: Float[Tensor, " a"]) -> Float[Tensor, " a"]:
        return u.new_full(u.shape, self.first + (self.last - self.first) * min(1.0, t / self.steps))


@dataclass(frozen=True)
class Bernoulli(ThetaPolicy):
    """Predict with probability p, else clip."""

    p: float
    draws: ClassVar[bool] = True

    def at(self, t: int, u: Float[Tensor, " a"]) -> Float[Tensor, " a"]:
        return (u < self.p).to(u.dtype)


@dataclass(frozen=True)
class UniformTheta(ThetaPolicy):
    """Uniform in [0, 1]."""

    draws: ClassVar[bool] = True

    def at(self, t: int, u: Float[Tensor, " a"]) -> Float[Tensor, " a"]:
        return u


@dataclass(frozen=True)
class ByAge:
    """theta of each message by its age: sqrt((1 - beta) / 2) / (rho (age + 1)), or a multiple of it.

    A late state enters with weight theta and is fed back age steps later, so theta is a gain. With rho the spectral
    radius of W' and beta the momentum, theta rho (age + 1) <= sqrt(1 - beta) keeps every curvature h with
    eta h <= 1 - beta stable, whatever the delay. The factor sqrt(1/2) below that limit is a margin: at the limit noise
    resonates, at the margin its power doubles at most (docs/theory.md).

    Attributes:
        multiple: of this value.
        by_hindsight: use less, or nothing, where predictions have been poor; this is then the largest value.
    """

    multiple: float = 1.0
    by_hindsight: Hindsight = Hindsight.NONE

    def at(
        self, age: int, *, radius: float, momentum: float, predictor: str = "gradient", lag: float = math.inf
    ) -> float:
        """Return theta for messages of this age; `radius` is `Network.late_radius`, `lag` that of a trend."""
        return min(1.0, self.multiple * stable_theta(age, radius, momentum, predictor, lag))


def stable_theta(age: int, radius: float, momentum: float, predictor: str, lag: float = math.inf) -> float:
    """Return theta for messages of this age: stable whatever the delay, with a margin."""
    if predictor == "own":  # the prediction adds the agent's own way: this is DM-ASGD's gain, and its limit
        return GAINS["damped" if momentum else "undamped"](age)
    margin = 0.5 if predictor == "trend" else math.sqrt(0.5)
    return margin * _largest_gain(momentum, predictor, lag) / (max(radius, TINY) * (age + 1))


def limit_of_theta(network: Network, *, momentum: float, predictor: str, lag: float) -> float:
    """Return the theta at the largest delay above which some curvature h with eta h <= 1 - momentum may be unstable."""
    tau, radius = network.delay.largest, max(network.late_radius, TINY)
    if predictor == "own":
        return stability_limit(tau, largest_eigenvalue(network))
    if predictor == "gradient" and not momentum:
        return 1 / (radius * max(tau, 1))
    return _largest_gain(momentum, predictor, lag) / (radius * (tau + 1))


def _largest_gain(momentum: float, predictor: str, lag: float) -> float:
    """Return the largest theta rho (age + 1). A momentum amplifies gradients, and trends of a short lag."""
    root = math.sqrt(1 - momentum)
    return min(1.0, root * math.hypot(1, root * (1 + lag))) if predictor == "trend" else root


def parse_theta(value: float | str) -> ThetaPolicy | ByAge | None:
    """Read theta from a number or text; None means the PV criterion."""
    if value == "pv":
        return None
    if value == KALMAN:
        return ByAge(by_hindsight=Hindsight.GAIN)
    if value == "uniform":
        return UniformTheta()
    text = str(value)
    kind, colon, rest = text.partition(":")
    if not colon and _is_number(kind):
        return Piecewise(((0, _share(float(kind))),))
    match kind:
        case "auto":
            return ByAge(_multiple(rest) if colon else 1.0)
        case "bernoulli":
            return Bernoulli(_share(read_number("theta's probability", rest)))
        case "linear":
            return _linear(text, rest)
        case "piecewise":
            return _piecewise(text, rest)
    known = [
        "auto",
        "auto:C",
        "kalman",
        "pv",
        "uniform",
        "bernoulli:P",
        "linear:A,B,STEPS",
        "piecewise:STEP=V,…",
        "0.3",
    ]
    raise unknown_name("theta", text, known)


def lasting_theta(policy: ThetaPolicy) -> float:
    """Return the theta that stability depends on: the largest of a schedule, the mean of a random one."""
    match policy:
        case Piecewise():
            return max(value for _, value in policy.pieces)
        case Linear():
            return max(policy.first, policy.last)
        case Bernoulli():
            return policy.p  # theta_t is independent of the states, so their mean follows the mean of theta
    return 0.5


def _multiple(text: str) -> float:
    multiple = read_number("theta's multiple of auto", text)
    if not 0 < multiple < math.inf:
        raise UserError(f"theta's multiple of auto must lie above 0 and be finite, got {multiple}; use for example 0.5")
    return multiple


def _linear(value: str, rest: str) -> ThetaPolicy:
    parts = rest.split(",")
    if len(parts) != 3:
        raise UserError(f"theta '{value}' needs three numbers: linear:FIRST,LAST,STEPS, as linear:0,0.5,1000")
    steps = read_whole("theta's steps", parts[2])
    if steps < 1:
        raise UserError(f"theta '{value}' needs 1 step or more, got {steps}")
    return Linear(_share(read_number("theta", parts[0])), _share(read_number("theta", parts[1])), steps)


def _piecewise(value: str, rest: str) -> ThetaPolicy:
    pieces = []
    for part in rest.split(","):
        start, equals, share = part.partition("=")
        if not equals:
            raise UserError(f"theta '{value}' needs STEP=VALUE pieces, as piecewise:0=0.3,500=0.7; got '{part}'")
        pieces.append((read_whole("theta's step", start), _share(read_number("theta", share))))
    starts = [start for start, _ in pieces]
    if starts != sorted(set(starts)) or starts[0] != 0:
        raise UserError(f"theta '{value}' must start at step 0 and go upwards, as piecewise:0=0.3,500=0.7")
    return Piecewise(tuple(pieces))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _share(value: float) -> float:
    if not 0 <= value <= 1:
        raise UserError(f"theta must lie in [0, 1], got {value}; use for example {EXAMPLES}")
    return float(value)
