"""The tradeoff parameter theta of PC-ASGD (Algorithm 1, line 8), except for the PV criterion.

| text                      | theta_t                                               |
|---------------------------|-------------------------------------------------------|
| 0.3                       | the constant 0.3                                      |
| linear:0,0.5,1000         | from 0 to 0.5 over the first 1000 steps, then 0.5     |
| piecewise:0=0.3,500=0.7   | 0.3 from step 0, 0.7 from step 500                    |
| bernoulli:0.3             | 1 with probability 0.3, else 0                        |
| uniform                   | uniform in [0, 1]                                     |
| pv                        | 0 or 1 by the criterion of Algorithm 2 (pc_asgd.py)   |
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from gossamer.errors import UserError, read_number, read_whole, unknown_name
from gossamer.shapes import Float, Tensor

EXAMPLES = "0.3, pv, bernoulli:0.3, uniform, linear:0,0.5,1000 or piecewise:0=0.3,500=0.7"


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


def parse_theta(value: float | str) -> ThetaPolicy | None:
    """Read theta from a number or text; None means the PV criterion."""
    if value == "pv":
        return None
    if value == "uniform":
        return UniformTheta()
    text = str(value)
    kind, colon, rest = text.partition(":")
    if not colon and _is_number(kind):
        return Piecewise(((0, _share(float(kind))),))
    match kind:
        case "bernoulli":
            return Bernoulli(_share(read_number("theta's probability", rest)))
        case "linear":
            return _linear(text, rest)
        case "piecewise":
            return _piecewise(text, rest)
    known = ["pv", "uniform", "bernoulli:P", "linear:A,B,STEPS", "piecewise:STEP=V,…", "0.3"]
    raise unknown_name("theta", text, known)


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
