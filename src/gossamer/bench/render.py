"""Results for people: tables of text for the terminal and for RESULTS.md."""

from collections.abc import Callable
from typing import Any

from gossamer.bench.results import Record
from gossamer.engine.memory_need import in_words


def _number(value: float) -> str:
    """Write three digits at least: 0.0123, 1.23, 12.3, 1234."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


# In the order in which a table shows them; one that no row has is left out.
COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "label": ("what", str),
    "delay": ("delay", str),
    "history": ("history", str),
    "ms": ("ms/iteration", _number),
    "spread": ("range", str),
    "extra": ("extra ms", _number),
    "times_mixing": ("extra over mixing", lambda value: f"{value:.2f}"),
    "age": ("mean age", lambda value: f"{value:.2f}"),
    "cpu": ("CPU ms", _number),
    "sent": ("bytes sent", in_words),
    "faster": ("times gossamer's", lambda value: f"{value:.2f}"),
    "over": ("over D-ASGD", lambda value: f"{100 * value:+.1f} %"),
    "examples": ("examples a second", lambda value: f"{value:,.0f}"),
    "peak": ("measured peak", in_words),
    "reserved": ("reserved", in_words),
    "estimate": ("engine's estimate", in_words),
    "formula": ("(tau+2) N d a history", in_words),
    "histories": ("histories", in_words),
    "states": ("states", in_words),
    "activations": ("activations", in_words),
    "data": ("data", in_words),
    "note": ("note", str),
}


def _stopped(found: dict[str, Any]) -> str:
    return (
        f"{found['label']}, one receiver stopped: {found['steps']} steps of {_number(found['ms'])} ms "
        f"({_number(found['low'])} - {_number(found['high'])}; {_number(found['ms_before'])} with all running), "
        f"private memory {in_words(found['memory_before'])} before, then from {in_words(found['memory_start'])} "
        f"to {in_words(found['memory_end'])} ({found['growth'] / found['message']:+.1f} messages)"
    )


FACTS: dict[str, Callable[[Any], str]] = {
    "bytes_moved": lambda value: f"bytes that the fused units must move: {in_words(value)}",
    "copy_rate": lambda value: f"rate of a large copy inside the device: {in_words(value)} a second",
    "floor_ms": lambda value: f"memory-traffic floor: {_number(value)} ms",
    "over_floor": lambda value: f"gossamer takes {_number(value)} times the floor",
    "worst_shared": lambda value: f"shared memory takes at most {_number(value)} times the mixing alone on top of it",
    "stopped_shared": _stopped,
    "stopped_sockets": _stopped,
}


def to_text_table(record: Record) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows as text."""
    rows = [dict(row) for row in record["rows"]]
    for row in rows:
        if row.get("low") is not None:
            row["spread"] = f"{_number(row['low'])} - {_number(row['high'])}"
    keys = [key for key in COLUMNS if any(row.get(key) is not None for row in rows)]
    cells = [["-" if row.get(key) is None else COLUMNS[key][1](row[key]) for key in keys] for row in rows]
    return [COLUMNS[key][0] for key in keys], cells


def to_facts(record: Record) -> list[str]:
    """Return what belongs to no row, a sentence each."""
    return [FACTS[name](value) for name, value in record["facts"].items() if name in FACTS and value is not None]


def to_markdown(records: list[Record]) -> str:
    """Return RESULTS.md: case by case, the devices under each other."""
    lines = [
        "# Benchmark results",
        "",
        "Written by `gossamer bench`; docs/benchmarks.md says what is measured and how to read it.",
    ]
    ordered = sorted(records, key=lambda record: record["quick"])
    for title in dict.fromkeys(record["title"] for record in ordered):
        lines += ["", f"## {title}"]
        for record in ordered:
            if record["title"] == title:
                lines += _section(record)
    return "\n".join(lines) + "\n"


def _section(record: Record) -> list[str]:
    where = record["environment"]
    headings, rows = to_text_table(record)
    table = [headings, ["---"] + ["---:"] * (len(headings) - 1), *rows]
    versions = ", ".join(f"{name} {where[name]}" for name in ("torch", "triton", "gossamer") if where.get(name))
    return [
        "",
        f"### {where['device']}",
        "",
        f"{record['about']}." + (" Interrupted: fewer blocks than usual." if record["interrupted"] else ""),
        "",
        *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table),
        "",
        *(f"* {fact}" for fact in to_facts(record)),
        f"* `{record['command']}`",
        f"* {where['date']}, {where['cpus']} CPUs, {where['threads']} threads, Python {where['python']}, {versions}",
    ]
