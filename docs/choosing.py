"""Write the tables of choosing.md and of algorithms/*.md from stored results: `python docs/choosing.py`.

CIFAR-10: the runs in results/data, as `gossamer reproduce` stores them. Digits: the two tables that `gossamer compare`
wrote into results/digits-delay-20.md.
"""

import functools
import re
import statistics
from pathlib import Path

from gossamer.algorithms import algorithm_class
from gossamer.paper import RESULTS
from gossamer.paper.cells import ALGORITHMS, SCALES
from gossamer.paper.findings import Section
from gossamer.paper.rates import Rates
from gossamer.paper.recommended import BASELINE, LIMITS, ROWS, UNDAMPED, WITHOUT_DELAY
from gossamer.paper.store import Outcome, Store

# Revisions of the rules that results/digits-delay-20.md was written with, where above 1.
ON_DIGITS = dict.fromkeys(
    ("ad-psgd", "adaptive-braking", "dc-s3gd", "delay-adaptive", "feddelavg", "local-sgd", "r-fast", "swift"), 2
)
FOLDER = Path(__file__).parent
PAGE = FOLDER / "choosing.md"
RULES = sorted((FOLDER / "algorithms").glob("*.md"))
DIGITS = FOLDER / "results" / "digits-delay-20.md"
CIFAR = "PreResNet-110, CIFAR-10, 8 agents"  # at scale quick this is PreResNet-20
CIFAR_RESULTS = ("fig-delay", "table-2", "table-3")
# Column headings of this page -> column names of the results.
COLUMNS = {
    "delay 5": "tau 5",
    "delay 20": CIFAR,
    "delay 60": "tau 60",
    "delay 20, 20 agents": "PreResNet-110, CIFAR-10, 20 agents",
}
# The same for the columns of results/recommended.md.
TUNED = {
    f"{data}, delay {delay}": f"preresnet:20, 30 epochs, {part}, tau {delay}"
    for data, part in (("equal data", "iid"), ("skewed", "dirichlet:0.3"))
    for delay in LIMITS
}


def stored(name: str, protocol: str) -> Section:
    """Return what is stored of a result at scale quick."""
    return RESULTS[name].section(Rates(SCALES["quick"], Store(FOLDER / "results")), protocol)


@functools.cache
def tuned_table() -> str:
    """Return the table of CIFAR-10 with each algorithm at its own learning rate, best first."""
    section = stored("recommended", "tuned")
    rows = {
        row: [section.outcomes.get((row, column)) for column in TUNED.values()]
        for row in ROWS
        if row not in (UNDAMPED, WITHOUT_DELAY)
    }
    there = {row: [outcome for outcome in rows[row] if outcome is not None] for row in rows}
    unit = _bytes(there[BASELINE][0])
    lines = _head("algorithm", *TUNED, "sends")
    for row in sorted((row for row in rows if there[row]), key=lambda row: -_height(there[row])):
        cells = ["not run" if outcome is None else outcome.text_with_rate for outcome in rows[row]]
        lines.append(_row(f"`{ROWS[row]}`", *cells, f"{_bytes(there[row][0]) / unit:.2f}"))
    return "\n".join(lines)


def cifar_table() -> str:
    """Return the table of CIFAR-10, best at delay 20 first."""
    sections = [stored(name, "paper") for name in CIFAR_RESULTS]
    everywhere = {place: outcome for section in sections for place, outcome in section.outcomes.items()}
    at_20 = {row: everywhere[row, CIFAR] for row in ALGORITHMS if (row, CIFAR) in everywhere}
    unit = _bytes(at_20["D-ASGD"])
    lines = _head("algorithm", *COLUMNS, "sends")
    for row in sorted(at_20, key=lambda row: -at_20[row].mean):
        cells = [everywhere.get((row, column)) for column in COLUMNS.values()]
        sends = f"{_bytes(at_20[row]) / unit:.2f}"
        lines.append(
            _row(f"`{ALGORITHMS[row]}`", *("" if cell is None else cell.text_with_rate for cell in cells), sends)
        )
    return "\n".join(lines)


@functools.cache
def digits_table() -> str:
    """Return the table of digits: each algorithm at its own rate, equal and skewed data side by side."""
    tables = DIGITS.read_text(encoding="utf-8").partition("\n## Equal data")[2]
    equal, skewed = (_read(part) for part in tables.split("\n## Skewed data"))
    unit = float(equal["d-asgd"][5])
    best = sorted(equal, key=lambda name: -_mean(equal[name][1]) - _mean(skewed[name][1]))
    lines = _head("algorithm", "equal data", "skewed data", "sends")
    for name in best:
        sends = f"{float(equal[name][5]) / unit:.2f}"
        label = f"`{name}`" + (", as it was before its last change" if _is_changed(name) else "")
        lines.append(_row(label, equal[name][1], skewed[name][1], sends))
    return "\n".join(lines)


def filled(page: str) -> str:
    """Return the page with new tables."""
    for name, table in (("tuned", tuned_table()), ("cifar", cifar_table()), ("digits", digits_table())):
        begin, end = f"<!-- {name}: written by docs/choosing.py -->\n", "<!-- end -->"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n{table}\n\n{end}{rest.partition(end)[2]}"
    return page


def measured_table(names: list[str]) -> str:
    """Return the table of a rule's page: its digits and CIFAR-10 results at delay 20, and those of the baseline."""
    lines = _head("accuracy in %", "equal data", "skewed data")
    for task, table, columns in (("digits", digits_table(), (0, 1)), ("CIFAR-10", tuned_table(), (0, 2))):
        rows = {name: cells.split(" | ") for name, cells in re.findall(r"^\| `(\S+)` \| (.*) \|$", table, re.MULTILINE)}
        there = [name for name in names if name in rows]
        for name in dict.fromkeys([*there, "sync"] if there else []):
            cells = [rows[name][column].partition(", lr")[0] for column in columns]
            lines.append(_row(f"{task}, `{name}`", *cells))
    if len(lines) == len(_head("")):
        return "Not run since the rule's last change."
    return "\n".join(lines)


def filled_rule(page: str) -> str:
    """Return the page of a rule with its table renewed."""

    def renewed(found: re.Match[str]) -> str:
        return f"{found[1]}\n{measured_table(found[2].split())}\n\n{found[3]}"

    pattern = r"(<!-- measured, by docs/choosing.py: (.*) -->\n).*?(<!-- end -->)"
    return re.sub(pattern, renewed, page, flags=re.DOTALL)


def _is_changed(text: str) -> bool:
    """Say whether a rule has changed since the digits page was written."""
    name = text.partition("/")[0]
    return algorithm_class(name).revision > ON_DIGITS.get(name, 1)


def _height(outcomes: list[Outcome]) -> float:
    return statistics.fmean(outcome.mean for outcome in outcomes)


def _bytes(outcome: Outcome) -> float:
    return float(outcome.records[0]["bytes_sent"])


def _read(text: str) -> dict[str, list[str]]:
    """Return the cells of a table's rows, by algorithm."""
    rows = re.findall(r"^\| ([a-z][^|]*?) \| (.*) \|$", text, flags=re.MULTILINE)
    return {name.replace(" ", "/"): cells.split(" | ") for name, cells in rows if name != "algorithm"}


def _mean(cell: str) -> float:
    return float(cell.split(" ")[0])


def _head(*names: str) -> list[str]:
    return [_row(*names), f"|---|{'---:|' * (len(names) - 1)}"]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for rule in RULES:
        rule.write_text(filled_rule(rule.read_text(encoding="utf-8")), encoding="utf-8")
