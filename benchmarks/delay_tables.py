"""Write the tables of docs/results/pc-asgd.md from the runs of delay_study.py.

Run from the root of the repository:
    python benchmarks/delay_tables.py                       # the page, from docs/results/delay-study.jsonl
    python benchmarks/delay_tables.py --show study.jsonl    # only print the tables of a file
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

from delay_study import TASKS, UNDELAYED, Cell, Study

FOLDER = Path(__file__).parents[1] / "docs" / "results"
PAGE, DATA = FOLDER / "pc-asgd.md", FOLDER / "delay-study.jsonl"
DATA_NAMES = {"iid": "equal data", "dirichlet:0.3": "skewed data"}
TASK_NAMES = {"digits": "digits, plain SGD", "digits-momentum": "digits, momentum 0.9", "small-cifar": "small images"}
PREDICTING = ("pc-asgd", "pc-asgd/theta=kalman")  # theta by age, and by hindsight
VARIANTS = dict(zip((*PREDICTING, "pc-asgd/damping=0.2"), ("`auto`", "`kalman`", "`damping=0.2`"), strict=True))
OURS = (*VARIANTS, "dm-asgd", "sdm-asgd")
BELOW = ("c-asgd", "p-asgd", "d-asgd")
LIMITS = {20: 0.3, 60: 0.5}  # points below the synchronous run, by delay


def accuracies(study: Study, cell: Cell) -> list[float] | None:
    """Return what the seeds of a cell reach in %, 0 for one that diverged; None while some are missing."""
    rows = study.final(cell)
    return [100 * (row["accuracy"] or 0.0) for row in rows] if len(rows) == 3 else None


def found(study: Study, task: str, partition: str, tau: int, rule: str) -> list[float] | None:
    """Return the accuracies of a rule; one that no delay changes was run at one delay."""
    taus = delays(study, task, partition) if rule in UNDELAYED else [tau]
    return next((got for each in taus if (got := accuracies(study, Cell(task, partition, each, rule)))), None)


def delays(study: Study, task: str, partition: str) -> list[int]:
    """Return the delays at which a task was run."""
    return sorted({row["tau"] for row in study.rows if (row["task"], row["partition"]) == (task, partition)})


def table(study: Study, task: str) -> str:
    """Return the accuracies of a task: rules down; partitions and delays across."""
    columns = [(part, tau) for part in DATA_NAMES for tau in delays(study, task, part)]
    rules = dict.fromkeys(row["rule"] for row in study.rows if row["task"] == task)
    lines = ["| rule | " + " | ".join(f"{DATA_NAMES[part]}, tau {tau}" for part, tau in columns) + " |"]
    lines.append("|---|" + "---:|" * len(columns))
    for rule in rules:
        lines.append(f"| `{rule}` | " + " | ".join(entry(study, task, *column, rule) for column in columns) + " |")
    return "\n".join(lines)


def entry(study: Study, task: str, partition: str, tau: int, rule: str) -> str:
    """Return mean, standard deviation and rate of a cell."""
    if rule in UNDELAYED:
        tau = delays(study, task, partition)[0]
    cell = Cell(task, partition, tau, rule)
    got = accuracies(study, cell)
    if got is None:
        return "not run"
    diverged = sum(row["accuracy"] is None for row in study.final(cell))
    if diverged == len(got):
        return "diverged"
    told = f", {diverged} of 3 diverged" if diverged else ""
    rate = study.final(cell)[0]["lr"]
    return f"{statistics.fmean(got):.1f} ± {statistics.stdev(got):.1f} (lr {rate:g}{told})"


def verdict(study: Study, task: str, partition: str, tau: int) -> list[str] | None:
    """Return the line of a case: what each PC-ASGD gains over the paper's rules and loses, and which meets the aim."""
    got = {rule: found(study, task, partition, tau, rule) for rule in ("sync", *OURS, *BELOW)}
    means = {rule: statistics.fmean(values) for rule, values in got.items() if values is not None}
    if not {"sync", *BELOW, *PREDICTING} <= means.keys():
        return None
    lost = {rule: round(means["sync"] - mean, 1) for rule, mean in means.items()}
    limit = LIMITS.get(tau)
    reachable = limit is not None and min(lost[rule] for rule in OURS if rule in lost) <= limit
    cells, meeting = [f"{TASK_NAMES[task]}, {DATA_NAMES[partition]}, tau {tau}"], []
    for rule, name in VARIANTS.items():
        if rule not in means:
            cells += ["not run", "not run"]
            continue
        leads = [round(means[rule] - means[other], 1) for other in BELOW]
        told = (f"{lead:+.1f}" if means[other] else "diverged" for lead, other in zip(leads, BELOW, strict=True))
        cells += [", ".join(told), f"{lost[rule]:+.1f}"]
        if min(leads) > 0 and (not reachable or lost[rule] <= limit):
            meeting.append(name)
    return [*cells, "met by " + ", ".join(meeting) if meeting else "missed"]


def verdicts(study: Study) -> str:
    """Return the table of all cases."""
    pairs = [f"{name} over {', '.join(rule[0].upper() for rule in BELOW)} | below" for name in VARIANTS.values()]
    lines = [f"| case | {' | '.join(pairs)} | aim |", "|---|" + "---:|" * 2 * len(VARIANTS) + "---|"]
    for task in TASKS:
        for partition in DATA_NAMES:
            for tau in delays(study, task, partition):
                cells = verdict(study, task, partition, tau)
                lines += [f"| {' | '.join(cells)} |"] if cells else []
    aims = [line.rpartition(" | ")[2] for line in lines[2:]]
    counts = (f"by {name} in {sum(name in aim for aim in aims)}" for name in VARIANTS.values())
    either = sum("`auto`" in aim or "`kalman`" in aim for aim in aims)
    return "\n".join([f"Of {len(aims)} cases met {', '.join(counts)}; by `auto` or `kalman` in {either}.", "", *lines])


def shares(study: Study) -> str:
    """Return the mean theta of the variants, by task and delay."""
    rows: dict[str, dict[str, Any]] = {}
    for task in TASKS:
        for partition in DATA_NAMES:
            for tau in delays(study, task, partition):
                for rule in PREDICTING:
                    runs = study.final(Cell(task, partition, tau, rule))
                    if runs:
                        case = f"{TASK_NAMES[task]}, {DATA_NAMES[partition]}, tau {tau}"
                        rows.setdefault(case, {})[rule] = statistics.fmean(run["predict"] for run in runs)
    lines = [
        "| mean theta | " + " | ".join(f"`{rule}`" for rule in PREDICTING) + " | quotient |",
        "|---|---:|---:|---:|",
    ]
    for case, of in rows.items():
        if len(of) == len(PREDICTING):
            auto, kalman = (of[rule] for rule in PREDICTING)
            lines.append(f"| {case} | {auto:.3f} | {kalman:.3f} | {kalman / auto:.2f} |")
    return "\n".join(lines)


def tables(study: Study) -> dict[str, str]:
    """Return every table by its name."""
    there = [task for task in TASKS if any(row["task"] == task for row in study.rows)]
    return {"verdicts": verdicts(study), **{task: table(study, task) for task in there}, "shares": shares(study)}


def filled(page: str, study: Study) -> str:
    """Return the page with new tables."""
    for name, text in tables(study).items():
        begin, end = f"<!-- {name}: written by benchmarks/delay_tables.py -->\n", "<!-- end -->"
        before, there, rest = page.partition(begin)
        if there:
            page = f"{before}{begin}\n{text}\n\n{end}{rest.partition(end)[2]}"
    return page


def main() -> None:
    """Write the page, or show a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--show", type=Path, help="print the tables of this file, and write nothing")
    shown = parser.parse_args().show
    if shown:
        print("\n\n".join(tables(Study(shown)).values()))
    else:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), Study(DATA)), encoding="utf-8")


if __name__ == "__main__":
    main()
