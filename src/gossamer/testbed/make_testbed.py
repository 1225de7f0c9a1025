"""Testbeds from a text, a TOML file or numbers."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gossamer.errors import UserError, read_whole, unknown_name
from gossamer.testbed.absence_text import parse_schedule
from gossamer.testbed.compute_text import make_compute
from gossamer.testbed.link_times import parse_jitter
from gossamer.testbed.named_beds import TESTBEDS, Machines, garbled, make_machines
from gossamer.testbed.place_table import NumberRule, read_numbers
from gossamer.testbed.testbed import CUSTOM, MAX_AGE, Testbed
from gossamer.testbed.time_unit import MOST
from gossamer.testbed.units import read_bytes, read_plain, read_rate, read_seconds

SETTINGS = (
    "agents", "compute", "slow", "update", "latency", "bandwidth", "uplink", "loss", "jitter", "schedule",
    "tolerance", "max_age", "deadline", "returning", "step_seconds", "model", "seed",
)  # fmt: skip
DRAWN = ("planet", "phones")  # testbeds whose machines are drawn
MOST_LOSS = 0.99

LATENCY = NumberRule("latency", read_seconds, 0.0, MOST, "50ms")
BANDWIDTH = NumberRule("bandwidth", read_rate, 0.0, math.inf, "100Mbit/s", above=True)
LOSS = NumberRule("loss", read_plain, 0.0, MOST_LOSS, "0.01")


def testbed(
    spec: str | Path | Testbed | None = None,
    *,
    agents: int | None = None,
    compute: Any = None,
    latency: Any = None,
    bandwidth: Any = None,
    uplink: Any = None,
    loss: Any = None,
    jitter: Any = None,
    schedule: Any = None,
    slow: Any = None,
    update: Any = None,
    tolerance: int | None = None,
    max_age: int | None = None,
    deadline: float | int | str | None = None,
    returning: str | None = None,
    step_seconds: float | int | str | None = None,
    model: float | int | str | None = None,
    seed: int | None = None,
) -> Testbed:
    """Make a testbed. What you give replaces what the text or file says; numbers may be texts with units.

    Args:
        spec: a text such as "lan:8" or "aws:oregon*3,virginia*3,tokyo*2", a .toml file, or a testbed to change.
        agents: their number, if there is no spec.
        compute: time of an iteration: a number, one per agent, or a text such as "lognormal:1,0.3".
        latency: one number, one per sender, a matrix [from, to] or "matrix:FILE".
        bandwidth: bytes a second, likewise; infinity means that sending takes no time.
        uplink: bytes a second that an agent can send in all: one number, or one per agent.
        loss: the probability that a message is lost.
        jitter: mean extra latency of a message, or a text such as "lognormal:5ms,0.5".
        schedule: who goes down and comes back: a text such as "churn:600,60", or rows of (time, agent, up).
        slow: agents that take longer: "3*4" (agent 3, four times as long), a dict, or a factor per agent.
        update: time of the update itself, added to each iteration.
        tolerance: messages of at most this age count as current.
        max_age: older messages are dropped.
        deadline: seconds of silence after which a sender's message is dropped, or "auto".
        returning: "own" or "adopt": the state from which an agent goes on that returns.
        step_seconds: compute and update are multiples of this time.
        model: bytes of a model, such as "13.6MB": messages count as if the model that is trained were as large.
        seed: draws the machines of "planet" and "phones".
    """
    given = {name: value for name, value in locals().items() if name != "spec" and value is not None}
    if isinstance(spec, Testbed):
        return _changed(spec, given)
    settings = {**({} if spec is None else read_settings(str(spec))), **given}
    return _make(settings, CUSTOM if spec is None or given else str(spec))


testbed.__test__ = False  # type: ignore[attr-defined]  # no test, in spite of its name


def read_settings(text: str) -> dict[str, Any]:
    """Return the settings of a text or a TOML file; `machines` are the name and its arguments."""
    text = text.strip()
    if text.endswith(".toml"):
        return _from_file(text)
    kind, _, rest = text.partition(":")
    if kind not in TESTBEDS:
        raise unknown_name("testbed", kind, TESTBEDS)
    words: list[str] = []
    settings: dict[str, Any] = {}
    current = ""
    for part in rest.split(";"):
        for number, word in enumerate(part.split(",")):
            name, equals, value = word.partition("=")
            if equals:
                current = name.strip()
                if current not in SETTINGS or current == "agents":
                    raise unknown_name("setting of a testbed", current, (name for name in SETTINGS if name != "agents"))
                if current in settings:
                    raise UserError(f"testbed '{text}' says {current} twice; give it once")
                settings[current] = value.strip()
            elif current and number:
                settings[current] += f",{word.strip()}"  # a further number, as in compute=lognormal:1,0.3
            elif current or not word.strip():
                raise garbled(kind)
            else:
                words.append(word.strip())
    return {"machines": (kind, tuple(words)), **settings}


def _from_file(path: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            settings = tomllib.load(file)
    except OSError as error:
        raise UserError(f"cannot read testbed '{path}' ({error.strerror}); check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"'{path}' is not valid TOML: {error}") from None
    base = settings.pop("testbed", None)
    for name in settings:
        if name not in SETTINGS:
            raise unknown_name("setting of a testbed", name, ("testbed", *SETTINGS))
    if base is not None and (not isinstance(base, str) or base.endswith(".toml")):
        raise UserError(f"testbed in '{path}' must be a name such as lan:8, got {base!r:.60}")
    return {**({} if base is None else read_settings(base)), **settings}


def _make(settings: dict[str, Any], spec: str) -> Testbed:
    machines = _machines(settings)
    settings = {**machines.settings, **settings}
    fields = _link_fields(settings, machines) | _limits(settings)
    compute = make_compute(machines.agents, settings.get("compute", 1.0), settings.get("slow"), settings.get("update"))
    return Testbed(agents=machines.agents, compute=compute, spec=spec, places=machines.places, **fields)


def _machines(settings: dict[str, Any]) -> Machines:
    named, agents = settings.pop("machines", None), settings.pop("agents", None)
    if named is None:
        if "seed" in settings:
            raise UserError("seed draws the machines of planet and phones; leave it out")
        if agents is None:
            raise UserError("a testbed needs a name such as lan:8, or a number of agents; say agents=8")
        return Machines(_whole("agents", agents), 0.0, math.inf)
    kind, words = named
    if "seed" in settings and kind not in DRAWN:
        raise UserError(f"testbed {kind} draws no machines; leave seed={settings['seed']} out")
    found = make_machines(kind, words, _whole("seed", settings.get("seed", 0)))
    if agents is not None and _whole("agents", agents) != found.agents:
        raise UserError(f"testbed {kind} has {found.agents} agents, and agents is {agents}; leave agents out")
    return found


def _link_fields(settings: Mapping[str, Any], machines: Machines) -> dict[str, Any]:
    uplink = settings.get("uplink", machines.uplink)
    return {
        "latency": read_numbers(LATENCY, settings.get("latency", machines.latency), machines.agents),
        "bandwidth": read_numbers(BANDWIDTH, settings.get("bandwidth", machines.bandwidth), machines.agents),
        "loss": read_numbers(LOSS, settings.get("loss", 0.0), machines.agents),
        "uplink": None if uplink is None else _uplink(uplink, machines.agents),
        "jitter": parse_jitter(settings.get("jitter")),
        "schedule": parse_schedule(settings.get("schedule", machines.schedule)),
    }


def _limits(settings: Mapping[str, Any]) -> dict[str, Any]:
    deadline = settings.get("deadline", "auto")
    return {
        "tolerance": _whole("tolerance", settings.get("tolerance", 0)),
        "max_age": _whole("max_age", settings.get("max_age", MAX_AGE)),
        "deadline": deadline if deadline == "auto" else read_seconds("deadline", deadline),
        "returning": settings.get("returning", "own"),
        "step_seconds": read_seconds("step_seconds", settings.get("step_seconds", 1.0)),
        "model_bytes": None if settings.get("model") is None else read_bytes("model", settings["model"]),
    }


def _uplink(value: Any, agents: int) -> float | tuple[float, ...]:
    rule = NumberRule("uplink", read_rate, 0.0, math.inf, "10Mbit/s", above=True)
    if isinstance(value, str) and "," in value:
        value = value.split(",")
    if isinstance(value, str) or not hasattr(value, "__len__"):
        return rule.check(read_rate("uplink", value))
    rates = tuple(rule.check(read_rate("uplink", rate), f" of agent {agent}") for agent, rate in enumerate(value))
    if len(rates) != agents:
        raise UserError(f"uplink has {len(rates)} numbers for {agents} agents; give one number, or one per agent")
    return rates


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise UserError(f"{name} must be a whole number, got {value}")
    return read_whole(name, value) if isinstance(value, str) else int(value)


def _changed(bed: Testbed, given: dict[str, Any]) -> Testbed:
    """Return a testbed with some settings replaced."""
    if "seed" in given or given.get("agents", bed.agents) != bed.agents:
        raise UserError("the machines of a testbed cannot be changed; make it anew with another text")
    machines = Machines(bed.agents, bed.latency, bed.bandwidth, bed.places, bed.uplink, bed.schedule)  # type: ignore[arg-type]
    same = {name: getattr(bed, name) for name in ("loss", "jitter", "deadline", "tolerance", "max_age")}
    settings = {**same, "returning": bed.returning, "step_seconds": bed.step_seconds, **given}
    fields = _link_fields(settings, machines) | _limits(settings)
    if given.keys() & {"compute", "slow", "update"}:
        base = given.get("compute", bed.compute)
        fields["compute"] = make_compute(bed.agents, base, given.get("slow"), given.get("update"))
    return replace(bed, **fields)
