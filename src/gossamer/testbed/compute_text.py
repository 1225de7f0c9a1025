"""Compute models from text: '0.2', 'lognormal:1,0.3', 'markov:4,10,30', 'trace:FILE', 'slow:3*4'."""

from collections.abc import Mapping
from typing import Any

from gossamer.errors import UserError, read_whole, unknown_name
from gossamer.testbed.adjusted_compute import AdjustedCompute
from gossamer.testbed.compute_time import ComputeTime, Constant
from gossamer.testbed.markov_slowdown import MarkovSlowdown
from gossamer.testbed.random_compute import LognormalTime, ShiftedExponential
from gossamer.testbed.recorded_times import RecordedTimes
from gossamer.testbed.units import read_plain, read_seconds

COMPUTES = {
    "constant": "the same time for every iteration, or one time per agent: 0.2",
    "lognormal": "mean, and the standard deviation of the logarithm: lognormal:1,0.3",
    "exponential": "at least the first number, and then an exponential time of the second mean: exponential:0.8,0.2",
    "markov": "a slow agent takes so many times as long; mean seconds slow, and fast: markov:4,10,30",
    "trace": "replay of a CSV file with agent,seconds or agent,iteration,seconds: trace:FILE",
    "slow": "one agent takes so many times as long as the others: slow:3*4",
}


def parse_compute(value: Any) -> ComputeTime:
    """Make a compute model from a text as in COMPUTES, a number, or one number per agent."""
    if isinstance(value, ComputeTime):
        return value
    if not isinstance(value, str):
        one = not hasattr(value, "__len__") and not hasattr(value, "__iter__")
        return Constant(read_seconds("compute", value) if one else tuple(read_seconds("compute", v) for v in value))
    kind, colon, rest = value.strip().partition(":")
    parts = rest.split(",") if colon else value.strip().split(",")
    if not colon and (kind[:1].isdigit() or kind[:1] in "+-." or kind in ("inf", "nan")):
        kind = "constant"
    if kind not in COMPUTES:
        raise unknown_name("compute", kind, COMPUTES)
    return _from_parts(kind, value, rest, parts)


def _from_parts(kind: str, text: str, rest: str, parts: list[str]) -> ComputeTime:
    what = f"compute '{text}'"
    match kind, len(parts):
        case "trace", _ if rest:
            return RecordedTimes.read(rest)
        case "constant", 1:
            return Constant(read_seconds(what, parts[0]))
        case "constant", _:
            return Constant(tuple(read_seconds(what, part) for part in parts))
        case "lognormal", 2:
            return LognormalTime(read_seconds(what, parts[0]), read_plain(what, parts[1]))
        case "exponential", 2:
            return ShiftedExponential(read_seconds(what, parts[0]), read_seconds(what, parts[1]))
        case "markov", 3:
            return MarkovSlowdown(
                read_plain(what, parts[0]), read_seconds(what, parts[1]), read_seconds(what, parts[2])
            )
    raise UserError(f"cannot read {what}; write it like {COMPUTES[kind].rpartition(' ')[2]}")


def make_compute(num_agents: int, compute: Any, slow: Any = None, update: Any = None) -> ComputeTime:
    """Return the model of these settings of a testbed."""
    if isinstance(compute, str) and compute.startswith("slow:"):
        if slow is not None:
            raise UserError(f"compute is '{compute}' and slow is {slow!r}; give one of them")
        compute, slow = 1.0, compute.removeprefix("slow:")
    model = parse_compute(compute)
    update = 0.0 if update is None else read_seconds("update", update)
    if slow is None and not update:
        return model
    return AdjustedCompute(model, None if slow is None else parse_factors(slow, num_agents), update)


def parse_factors(value: Any, num_agents: int) -> tuple[float, ...]:
    """Read '3*4,5*2', {3: 4, 5: 2}, or a factor per agent."""
    if isinstance(value, str) and "*" in value:
        pairs = [part.partition("*") for part in value.split(",")]
        value = {read_whole("agent in slow", agent): factor for agent, _, factor in pairs}
    if isinstance(value, Mapping):
        factors = [1.0] * num_agents
        for agent, factor in value.items():
            number = read_whole("agent in slow", str(agent))
            if not 0 <= number < num_agents:
                raise UserError(f"slow names agent {agent}; agents are numbered 0 to {num_agents - 1}")
            factors[number] = read_plain("factor in slow", factor)
        return tuple(factors)
    parts = value.split(",") if isinstance(value, str) else value
    if not hasattr(parts, "__iter__"):
        raise UserError(f"slow must name agents, got {value!r}; write it like 3*4")
    return tuple(read_plain("factor in slow", part) for part in parts)
