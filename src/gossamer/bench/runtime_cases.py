"""The case of agents as processes: what a step that gossips takes beyond the mixing alone, and what a dead peer costs.

Both are run by the same processes at the same time of day, in turns, so that they share cores and memory alike.
"""

import contextlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossamer.bench.cases import BenchRow, Measured, Request, case
from gossamer.bench.runtime_fleet import Fleet
from gossamer.bench.runtime_worker import STATUS
from gossamer.engine.memory_need import in_words
from gossamer.errors import UserError
from gossamer.runtime.keys import write_key

AGENTS = 4
MIXING, SHARED, SOCKETS, LOCKED = "mixing alone", "shared memory", "sockets", "sockets, encrypted"
STOPPED = {SHARED: "stopped_shared", SOCKETS: "stopped_sockets"}  # facts about a receiver that is stopped
BLOCK_LIMIT = 60.0  # seconds after which a block has steps enough
STOPPED_LIMIT = 60.0


@dataclass(frozen=True)
class Message:
    """How large a message is, how long it is measured, and whether with all that there is to see."""

    numbers: int  # of four bytes
    steps: int
    rounds: int
    locked: bool = False  # over encrypted sockets too
    stopped: int = 0  # steps while a receiver is stopped

    @property
    def text(self) -> str:
        """The size in words."""
        return f"{4 * self.numbers / 1e6:g} MB"

    @property
    def needs(self) -> int:
        """About how many bytes of memory all agents take with all contestants, as it was found."""
        return AGENTS * (75 if self.locked else 40) * 4 * self.numbers

    @property
    def ways(self) -> list[str]:
        """How it travels."""
        return [SHARED, SOCKETS, LOCKED] if self.locked else [SHARED, SOCKETS]


MESSAGES = (
    Message(100_000, 400, 5),
    Message(3_400_000, 40, 5, locked=True, stopped=500),
    Message(25_000_000, 6, 3),
)
TINY = (Message(10_000, 10, 2, locked=True, stopped=20),)


@dataclass
class BlockTally:
    """What the agents said of one contestant, block by block."""

    blocks: list[list[dict[str, Any]]] = field(default_factory=list)

    @property
    def row(self) -> BenchRow:
        """Medians over steps and agents: of all blocks, and of the fastest and the slowest one."""
        medians = [_milliseconds(block) for block in self.blocks]
        told = [answer for block in self.blocks for answer in block]
        ages = [answer["age"] for answer in told if answer["age"] is not None]
        return {
            "ms": _milliseconds(told),
            "low": min(medians),
            "high": max(medians),
            "cpu": 1000 * statistics.fmean(answer["cpu"] for answer in told),
            "age": statistics.fmean(ages) if ages else None,
            "sent": statistics.fmean(answer["sent"] for answer in told) or None,
        }


def free_memory() -> int:
    """Return the bytes that this machine can give to processes."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))


def _milliseconds(answers: Sequence[dict[str, Any]]) -> float:
    seconds: list[float] = [second for answer in answers for second in answer["seconds"]]
    return 1000 * statistics.median(seconds)


@case("runtime", "Agents as processes: a step that gossips beside the mixing alone", usual_on=(), needs_cpu=True)
def runtime(plan: Request) -> Measured:
    """Time whole steps of agents that exchange messages, and watch their memory while one of them is stopped."""
    measured = Measured(
        f"d-asgd, {AGENTS} agents (complete:{AGENTS}), each a process with one thread, float32, gradients of zeros; "
        "times are medians over steps and agents"
    )
    if not STATUS.exists():
        raise UserError(f"case 'runtime' reads '{STATUS}', which this system does not have; measure it on Linux")
    try:
        for message in TINY if plan.quick else MESSAGES:
            if message.needs > (free := free_memory()):
                note = f"needs {in_words(message.needs)} of memory, {in_words(free)} are free"
                measured.rows.append({"label": message.text, "note": note})
                continue
            plan.say(f"{message.text}, starting")
            with Fleet(AGENTS) as fleet:
                _measure(plan, fleet, message, measured)
    except KeyboardInterrupt:
        measured.interrupted = True
    over = [row["times_mixing"] for row in measured.rows if row["label"].endswith(SHARED) and row.get("times_mixing")]
    measured.facts["worst_shared"] = max(over, default=None)
    return measured


def _measure(plan: Request, fleet: Fleet, message: Message, measured: Measured) -> None:
    """Add what is found with messages of one size; after Ctrl+C, what was found until then."""
    from gossamer.runtime.book import serve_book  # it starts torch.distributed, which no other case needs

    with contextlib.closing(serve_book("127.0.0.1")) as book:
        _open(plan, fleet, message, book.endpoint)
        tallies = {label: BlockTally() for label in (MIXING, *message.ways)}
        try:
            _take_turns(plan, fleet, message, tallies)
        finally:
            measured.rows += to_rows(message, tallies)
        for way in STOPPED if message.stopped else ():
            measured.facts[STOPPED[way]] = _with_one_stopped(plan, fleet, message, way)


def _open(plan: Request, fleet: Fleet, message: Message, book: str) -> None:
    """Let all agents make all contestants."""
    key = fleet.folder / "key"
    write_key(key)
    settings: dict[str, dict[str, Any] | None] = {
        MIXING: None,
        SHARED: {"transport": "shared"},
        SOCKETS: {"transport": "sockets"},
        LOCKED: {"transport": "sockets", "key_file": str(key)},
    }
    for label in (MIXING, *message.ways):
        plan.say(f"{message.text}, {label}, opening")
        given = settings[label]
        full = None if given is None else {**given, "run": fleet.new_run(), "book": book}
        fleet.tell(do="open", label=label, size=message.numbers, settings=full)


def _run(fleet: Fleet, label: str, steps: int, **more: Any) -> list[dict[str, Any]]:
    """Let agents take steps; those at the edges of a block, when not all others are stepping, are not timed."""
    asked = {"warm_up": max(2, min(20, steps // 4)), "limit": BLOCK_LIMIT, "memory": False, **more}
    return fleet.tell(do="run", label=label, steps=steps, **asked)


def _take_turns(plan: Request, fleet: Fleet, message: Message, tallies: dict[str, BlockTally]) -> None:
    """Measure block after block, the mixing before each of the others; every round begins with another one."""
    steps, rounds, ways = plan.count(message.steps), message.rounds, message.ways
    for label in (MIXING, *ways):
        plan.say(f"{message.text}, {label}, warming up")
        _run(fleet, label, min(steps, 5))
        fleet.tell(do="rest")
    for number in range(rounds):
        first = number % len(ways)
        for way in ways[first:] + ways[:first]:
            for label in (MIXING, way):
                plan.say(f"{message.text}, {label}, round {number + 1} of {rounds}")
                tallies[label].blocks.append(_run(fleet, label, steps))
                fleet.tell(do="rest")


def to_rows(message: Message, tallies: dict[str, BlockTally]) -> list[BenchRow]:
    """Return a row for each contestant that was measured; `extra` is its time less that of the mixing alone."""
    rows: list[BenchRow] = []
    for label, tally in tallies.items():
        if not tally.blocks:
            continue
        row: BenchRow = {"label": f"{message.text}, {label}", **tally.row}
        if label != MIXING:
            mixing = rows[0]["ms"]
            row |= {"extra": row["ms"] - mixing, "times_mixing": (row["ms"] - mixing) / mixing}
        rows.append(row)
    return rows


def _with_one_stopped(plan: Request, fleet: Fleet, message: Message, way: str) -> dict[str, Any]:
    """Stop one agent in the middle of its steps, and let the others go on for long."""
    plan.say(f"{message.text}, {way}, one receiver stopped")
    *survivors, last = fleet.ranks
    before = _run(fleet, way, plan.count(message.steps), memory=True)
    fleet.stop(last)
    try:
        after = _run(fleet, way, message.stopped, ranks=survivors, warm_up=0, limit=STOPPED_LIMIT, memory=True)
    finally:
        fleet.go_on(last)
    fleet.tell(do="rest")
    return {"label": f"{message.text}, {way}", "message": 4 * message.numbers, **without_one(before, after)}


def without_one(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> dict[str, Any]:
    """Sum up what all agents said before one of them was stopped, and the others when they had gone on without it.

    The slowest and the fastest of ten parts of the time tell whether somebody is held back more and more. Memory is
    that of the agent whose memory grew most: before the stop, and in the first and the last of ten parts after it. It
    is a median, as messages come and go.
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
    """Return one of ten parts of a list that follow each other; of a short one, one value at least."""
    begin = number * len(values) // 10
    return values[begin : max(begin + 1, (number + 1) * len(values) // 10)]
