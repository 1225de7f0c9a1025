"""Benchmark results: one file per device, and text tables for the terminal and RESULTS.md.

A new measurement of a case replaces the old one.
"""

import datetime
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gossamer.bench.cases import Case, Measured, Request
from gossamer.engine.memory_need import in_words
from gossamer.errors import UserError
from gossamer.run.machine import device_name
from gossamer.run.strict_json import to_json
from gossamer.state.checkpoint import write_text
from gossamer.version import __version__

CaseRecord = dict[str, Any]


def environment(request: Request) -> dict[str, Any]:
    """Return the machine and the versions of a measurement."""
    return {
        "device": device_name(request.device),
        "cpus": os.cpu_count(),
        "threads": request.threads,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "gossamer": __version__,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def make_record(request: Request, one: Case, measured: Measured) -> CaseRecord:
    """Return the results of a case as stored."""
    return {
        "case": one.name,
        "title": one.title + (" (quick: tiny sizes)" if request.quick else ""),
        "about": measured.about,
        "command": request.command(one.name),
        "environment": environment(request),
        "rows": measured.rows,
        "facts": measured.facts,
        "quick": request.quick,
        "interrupted": measured.interrupted,
    }


def path_of(folder: Path, device: str) -> Path:
    """Return the file of a device's results."""
    slug = re.sub(r"[^a-z0-9]+", "-", device_name(device).lower()).strip("-")
    return folder / f"results-{slug}.json"


def save(folder: Path, device: str, record: CaseRecord) -> None:
    """Merge a record into the device's file. A quick measurement does not replace a full one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(folder, device)
    records = _read(path) if path.exists() else {}
    key = record["case"] + (" quick" if record["quick"] else "")
    if record["interrupted"] and key in records and not records[key]["interrupted"]:
        return  # an interrupted measurement does not replace a complete one
    records[key] = json.loads(to_json(record))
    document = {"device": device_name(device), "cases": records}
    write_text(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def load_all(folder: Path) -> list[CaseRecord]:
    """Return the records of all devices in a folder."""
    return [record for path in sorted(folder.glob("results-*.json")) for record in _read(path).values()]


def _read(path: Path) -> dict[str, CaseRecord]:
    try:
        records: dict[str, CaseRecord] = json.loads(path.read_text(encoding="utf-8"))["cases"]
        if not all({"case", "rows", "environment"} <= set(record) for record in records.values()):
            raise ValueError("records lack parts")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"'{path}' holds no results of gossamer bench ({error}); move it away") from None
    return records


def _number(value: float) -> str:
    """Return a number with at least three digits: 0.0123, 1.23, 12.3, 1234."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


# In the order of the table; a column without values is left out.
COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "label": ("what", str),
    "delay": ("delay", str),
    "history": ("history", str),
    "ms": ("ms/iteration", _number),
    "seconds": ("seconds", _number),
    "spread": ("range", str),
    "extra": ("extra ms", _number),
    "times_mixing": ("extra over mixing", lambda value: f"{value:.2f}"),
    "age": ("mean age", lambda value: f"{value:.2f}"),
    "cpu": ("CPU ms", _number),
    "sent": ("bytes sent", in_words),
    "faster": ("times gossamer's", lambda value: f"{value:.2f}"),
    "over": ("over D-ASGD", lambda value: f"{100 * value:+.1f} %"),
    "build": ("CPU seconds to build", _number),
    "us_agent": ("CPU us by agent and step", _number),
    "us_rest": ("without the gradient", _number),
    "of_steps": ("% of steps", _number),
    "floor_ms": ("byte floor, ms", _number),
    "over_floor": ("over its floor", lambda value: f"{value:.2f}"),
    "with_gradient": ("iteration over gradient", lambda value: f"{value:.2f}"),
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
    "copy_rate": lambda value: f"rate of a large copy on the device: {in_words(value)} per second",
    "floor_ms": lambda value: f"memory-traffic floor: {_number(value)} ms",
    "over_floor": lambda value: f"gossamer takes {_number(value)} times the floor",
    "worst_shared": lambda value: f"extra time of shared memory: at most {_number(value)} times the mixing alone",
    "stopped_shared": _stopped,
    "stopped_sockets": _stopped,
}


def to_text_table(record: CaseRecord) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows as text."""
    rows = [dict(row) for row in record["rows"]]
    for row in rows:
        if row.get("low") is not None:
            row["spread"] = f"{_number(row['low'])} - {_number(row['high'])}"
    keys = [key for key in COLUMNS if any(row.get(key) is not None for row in rows)]
    cells = [["-" if row.get(key) is None else COLUMNS[key][1](row[key]) for key in keys] for row in rows]
    return [COLUMNS[key][0] for key in keys], cells


def to_facts(record: CaseRecord) -> list[str]:
    """Return the facts about all rows, one line each."""
    return [FACTS[name](value) for name, value in record["facts"].items() if name in FACTS and value is not None]


def to_markdown(records: list[CaseRecord]) -> str:
    """Return RESULTS.md: the cases in order, each with all devices."""
    lines = [
        "# Benchmark results",
        "",
        "Written by `gossamer bench`; docs/benchmarks.md explains how to read it.",
    ]
    ordered = sorted(records, key=lambda record: record["quick"])
    for title in dict.fromkeys(record["title"] for record in ordered):
        lines += ["", f"## {title}"]
        for record in ordered:
            if record["title"] == title:
                lines += _section(record)
    return "\n".join(lines) + "\n"


def _section(record: CaseRecord) -> list[str]:
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
