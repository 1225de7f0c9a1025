"""Results on disk: one file a device, in which a case that is measured again replaces its old figures."""

import datetime
import importlib.metadata
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

import torch

from gossamer.bench.cases import Case, Measured
from gossamer.bench.request import Request
from gossamer.errors import UserError
from gossamer.run.folder import to_json
from gossamer.run.machine import device_name
from gossamer.state.checkpoint import write_text
from gossamer.version import __version__

Record = dict[str, Any]


def environment(plan: Request) -> dict[str, Any]:
    """Return where and with what something was measured."""
    return {
        "device": device_name(plan.device),
        "cpus": os.cpu_count(),
        "threads": plan.threads,
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


def make_record(plan: Request, one: Case, measured: Measured) -> Record:
    """Return a case's results as they are kept."""
    return {
        "case": one.name,
        "title": one.title + (" (quick: tiny sizes)" if plan.quick else ""),
        "about": measured.about,
        "command": plan.command(one.name),
        "environment": environment(plan),
        "rows": measured.rows,
        "facts": measured.facts,
        "quick": plan.quick,
        "interrupted": measured.interrupted,
    }


def path_of(folder: Path, device: str) -> Path:
    """Return the file of a device's results."""
    slug = re.sub(r"[^a-z0-9]+", "-", device_name(device).lower()).strip("-")
    return folder / f"results-{slug}.json"


def save(folder: Path, device: str, record: Record) -> None:
    """Merge a record into the device's file. A quick look stands beside the full figures, not in their place."""
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(folder, device)
    records = _read(path) if path.exists() else {}
    key = record["case"] + (" quick" if record["quick"] else "")
    if record["interrupted"] and key in records and not records[key]["interrupted"]:
        return  # half a measurement is no reason to lose a whole one
    records[key] = json.loads(to_json(record))
    document = {"device": device_name(device), "cases": records}
    write_text(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def load_all(folder: Path) -> list[Record]:
    """Return the records of all devices in a folder."""
    return [record for path in sorted(folder.glob("results-*.json")) for record in _read(path).values()]


def _read(path: Path) -> dict[str, Record]:
    try:
        records: dict[str, Record] = json.loads(path.read_text(encoding="utf-8"))["cases"]
        if not all({"case", "rows", "environment"} <= set(record) for record in records.values()):
            raise ValueError("records lack parts")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"'{path}' holds no results of gossamer bench ({error}); move it away") from None
    return records
