"""The simple functions as one of the results: run, kept in OUT/data/toy.json, drawn and written as a page."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gossamer.engine.training import Stop
from gossamer.paper.make_run import Stopped
from gossamer.paper.toy import STEPS, Row, run_toy
from gossamer.paper.toy_page import claims, toy_page
from gossamer.run.folder import to_json
from gossamer.state.checkpoint import write_text

PICTURES = "toy"
DIGITS = 5  # of a number that is kept


def make_toy(seeds: int, folder: Path, stop: Stop, on_case: Callable[[int, int], None]) -> None:
    """Run the functions and keep the rows, unless that was done with as many seeds; raise Stopped when told to."""
    rows = stored_toy(folder)
    if rows and rows[0]["seeds"] >= seeds and rows[0]["steps"] == STEPS:
        return

    def tell(done: int, cases: int) -> None:
        on_case(done, cases)
        if reason := stop():
            raise Stopped(str(reason))

    rows = run_toy(seeds, on_case=tell)
    path = folder / "data" / "toy.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "[\n" + ",\n".join(to_json(_short(row)) for row in rows) + "\n]\n")


def write_toy(folder: Path) -> list[Path]:
    """Write page and pictures of what was run, and return the paths."""
    rows = stored_toy(folder)
    if not rows:
        return []
    from gossamer.paper.toy_figures import write_toy_figures  # matplotlib is slow to import

    pictures = write_toy_figures(rows, folder / PICTURES)
    page = folder / "toy.md"
    write_text(page, toy_page(rows, f"{PICTURES}/"))
    return [page, *pictures]


def toy_counts(folder: Path) -> str:
    """Say how many of the paper's statements about the functions hold."""
    rows = stored_toy(folder)
    if not rows:
        return ""
    counts = Counter(claim.verdict.lower() for claim in claims(rows))
    listed = [f"'{word}': {number}" for word, number in counts.most_common()]
    return f"of {counts.total()} statements {', '.join(listed)}"


def stored_toy(folder: Path) -> list[Row]:
    """Return what was run before, or nothing when that is not there or damaged."""
    try:
        rows = json.loads((folder / "data" / "toy.json").read_text(encoding="utf-8"))
        whole = all({"function", "delay", "seeds", "steps"} <= set(row) for row in rows)
    except (OSError, ValueError, TypeError):
        return []
    return rows if whole and isinstance(rows, list) else []


def _short(value: Any) -> Any:
    """Return a value with few digits, whatever it is made of."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return [_short(item) for item in value] if isinstance(value, list | tuple) else value
