"""The case of agents as processes: the extra time of a gossip step over mixing alone, and the cost of a dead peer.

The same processes run all contestants in turns, so all share cores and memory in the same way.
"""

import contextlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.bench.cases import BenchRow, Measured, Request, case
from gossamer.bench.runtime_fleet import Fleet
from gossamer.bench.runtime_worker import STATUS
from gossamer.engine.memory_need import free_bytes, in_words
from gossamer.errors import UserError
from gossamer.run.metric_rows import mean
from gossamer.runtime.book.keys import write_key

AGENTS = 4
MIXING, SHARED, SOCKETS, LOCKED = "mixing alone", "shared memory", "sockets", "sockets, encrypted"
STOPPED = {SHARED: "stopped_shared", SOCKETS: "stopped_sockets"}  # names of the facts about a stopped receiver
BLOCK_LIMIT = 60.0  # longest block in seconds
STOPPED_LIMIT = 60.0


@dataclass(frozen=True)
class Message:
    """The size of a message, how long it is measured, and with which extra contestants."""

    numbers: int  # of four bytes each
    steps: int
    rounds: int
    locked: bool = False  # also over encrypted sockets
    stopped: int = 0  # steps with a stopped receiver

    @property
    def text(self) -> str:
        """The size in words."""
        return f"{4 * self.numbers / 1e6:g} MB"

    @property
    def needs(self) -> int:
        """The measured memory, in bytes, of all agents with all contestants."""
        return AGENTS * (75 if self.locked else 40) * 4 * self.numbers

    @property
    def ways(self) -> list[str]:
        """The transports to measure."""
        return [SHARED, SOCKETS, LOCKED] if self.locked else [SHARED, SOCKETS]


MESSAGES = (
    Message(100_000, 400, 5),
    Message(3_400_000, 40, 5, locked=True, stopped=500),
    Message(25_000_000, 6, 3),
)
TINY = (Message(10_000, 10, 2, locked=True, stopped=20),)


Blocks = list[list[dict[str, Any]]]  # the answers of the agents about one contestant, block by block


def _row(blocks: Blocks) -> BenchRow:
    """Return medians over steps and agents: of all blocks, of the fastest and of the slowest block."""
    medians = [_milliseconds(block) for block in blocks]
    told = [answer for block in blocks for answer in block]
    return {
        "ms": _milliseconds(told),
        "low": min(medians),
        "high": max(medians),
        "cpu": 1000 * statistics.fmean(answer["cpu"] for answer in told),
        "age": mean(answer["age"] for answer in told),
        "sent": statistics.fmean(answer["sent"] for answer in told) or None,
    }


def _milliseconds(answers: Sequence[dict[str, Any]]) -> float:
    seconds: list[float] = [second for answer in answers for second in answer["seconds"]]
    return 1000 * statistics.median(seconds)


@case("runtime", "Agents as processes: a step that gossips beside the mixing alone", usual_on=(), only_on="cpu")
def runtime(request: Request) -> Measured:
    """Time whole steps of agents that exchange messages, and measure their memory while one is stopped."""
    measured = Measured(
        f"d-asgd, {AGENTS} agents (complete:{AGENTS}), each a process with one thread, float32, gradients of zeros; "
        "times are medians over steps and agents"
    )
    if not STATUS.exists():
        raise UserError(f"case 'runtime' reads '{STATUS}', which this system does not have; measure it on Linux")
    try:
        for message in TINY if request.quick else MESSAGES:
            if message.needs > (free := free_bytes("cpu") or 0):
                note = f"needs {in_words(message.needs)} of memory, {in_words(free)} are free"
                measured.rows.append({"label": message.text, "note": note})
                continue
            request.say(f"{message.text}, starting")
            with Fleet(AGENTS) as fleet:
                _measure(request, fleet, message, measured)
    except KeyboardInterrupt:
        measured.interrupted = True
    over = [row["times_mixing"] for row in measured.rows if row["label"].endswith(SHARED) and row.get("times_mixing")]
    measured.facts["worst_shared"] = max(over, default=None)
    return measured


def _measure(request: Request, fleet: Fleet, message: Message, measured: Measured) -> None:
    """Add the results for messages of one size; after Ctrl+C, the results so far."""
    from gossamer.runtime.book.address_book import serve_book  # it starts torch.distributed, which no other case needs

    with contextlib.closing(serve_book("127.0.0.1")) as book:
        _open(request, fleet, message, book.endpoint)
        tallies: dict[str, Blocks] = {label: [] for label in (MIXING, *message.ways)}
        try:
            _take_turns(request, fleet, message, tallies)
        finally:
            measured.rows += to_rows(message, tallies)
        for way in STOPPED if message.stopped else ():
            measured.facts[STOPPED[way]] = _with_one_stopped(request, fleet, message, way)


def _open(request: Request, fleet: Fleet, message: Message, book: str) -> None:
    """Make all contestants in all agents."""
    key = fleet.folder / "key"
    write_key(key)
    settings: dict[str, dict[str, Any] | None] = {
        MIXING: None,
        SHARED: {"transport": "shared"},
        SOCKETS: {"transport": "sockets"},
        LOCKED: {"transport": "sockets", "key_file": str(key)},
    }
    for label in (MIXING, *message.ways):
        request.say(f"{message.text}, {label}, opening")
        given = settings[label]
        full = None if given is None else {**given, "run": fleet.new_run(), "book": book}
        fleet.tell(do="open", label=label, size=message.numbers, settings=full)


def _run(fleet: Fleet, label: str, steps: int, **more: Any) -> list[dict[str, Any]]:
    """Let agents take steps; steps at the edges of a block, when others may stand still, are not timed."""
    asked = {"warm_up": max(2, min(20, steps // 4)), "limit": BLOCK_LIMIT, "memory": False, **more}
    return fleet.tell(do="run", label=label, steps=steps, **asked)


def _take_turns(request: Request, fleet: Fleet, message: Message, tallies: dict[str, Blocks]) -> None:
    """Measure block after block, mixing before each transport; every round starts with another transport."""
    steps, rounds, ways = request.count(message.steps), message.rounds, message.ways
    for label in (MIXING, *ways):
        request.say(f"{message.text}, {label}, warming up")
        _run(fleet, label, min(steps, 5))
        fleet.tell(do="rest")
    for number in range(rounds):
        first = number % len(ways)
        for way in ways[first:] + ways[:first]:
            for label in (MIXING, way):
                request.say(f"{message.text}, {label}, round {number + 1} of {rounds}")
                tallies[label].append(_run(fleet, label, steps))
                fleet.tell(do="rest")


def to_rows(message: Message, tallies: dict[str, Blocks]) -> list[BenchRow]:
    """Return a row per measured contestant; `extra` is its time minus the time of mixing alone."""
    rows: list[BenchRow] = []
    for label, blocks in tallies.items():
        if not blocks:
            continue
        row: BenchRow = {"label": f"{message.text}, {label}", **_row(blocks)}
        if label != MIXING:
            mixing = rows[0]["ms"]
            row |= {"extra": row["ms"] - mixing, "times_mixing": (row["ms"] - mixing) / mixing}
        rows.append(row)
    return rows


def _with_one_stopped(request: Request, fleet: Fleet, message: Message, way: str) -> dict[str, Any]:
    """Stop one agent during its steps, and let the others continue for a long time."""
    request.say(f"{message.text}, {way}, one receiver stopped")
    *survivors, last = fleet.ranks
    before = _run(fleet, way, request.count(message.steps), memory=True)
    fleet.stop(last)
    try:
        after = _run(fleet, way, message.stopped, ranks=survivors, warm_up=0, limit=STOPPED_LIMIT, memory=True)
    finally:
        fleet.go_on(last)
    fleet.tell(do="rest")
    return {"label": f"{message.text}, {way}", "message": 4 * message.numbers, **without_one(before, after)}


def without_one(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarise the answers of all agents before the stop, and of the others after it.

    The fastest and the slowest tenth of the time show whether agents become slower. Memory is that of the agent whose
    memory grew most: before the stop, and in the first and the last tenth after it. It is a median, because messages
    come and go.
    """
    tenths = [_milliseconds([{"seconds": _tenth(answer["seconds"], n)} for answer in after]) for n in range(10)]
    median = statistics.median
    memory = [
        (median(all_["memory"]), median(_tenth(answer["memory"], 0)), median(_tenth(answer["memory"], 9)))
        for all_, answer in zip(before, after, strict=False)
    ]
    earlier, start, end = max(memory, key=lambda at: at[2] - at[1])
    return {
        "steps": min(len(answer["seconds"]) for answer in after),
        "ms": _milliseconds(after),
        "low": min(tenths),
        "high": max(tenths),
        "ms_before": _milliseconds(before),
        "memory_before": earlier,
        "memory_start": start,
        "memory_end": end,
        "growth": end - start,
    }


def _tenth(values: Sequence[float | int], number: int) -> Sequence[float | int]:
    """Return one of ten consecutive parts of a list, with at least one value."""
    begin = number * len(values) // 10
    return values[begin : max(begin + 1, (number + 1) * len(values) // 10)]
