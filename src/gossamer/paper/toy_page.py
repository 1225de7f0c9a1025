"""The simple functions as a result: run, kept in OUT/data/toy.json, and written as a page with a verdict a claim."""

import itertools
import json
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.engine.training import Stop
from gossamer.paper.cells import Scale
from gossamer.paper.findings import Section
from gossamer.paper.make_run import Stopped
from gossamer.paper.paper_result import PaperResult, markdown_table, wrapped
from gossamer.paper.toy import APART, CLUSTERS, PRINTED_LR, STEPS, Row, run_toy
from gossamer.paper.toy_figures import FORM, write_toy_figures
from gossamer.run.strict_json import to_json
from gossamer.state.checkpoint import write_text

PICTURES = "toy"  # their folder
DIGITS = 5  # of a number that is kept
TIGHT = 10.0  # a bound this many times the truth is no longer near it
MILD = 2.0  # quantities within this factor of each other differ mildly
GONE = 0.01  # of the first squared gradient: what is left when a run has converged
HOLDS, IN_PART, FAILS = "Holds", "Holds in part", "Does not hold"
HEADINGS = (
    *("function", "lambda", "eta", "delay", "outcome", "mean ‖∇F‖²", "last tenth", "bound, derived", "main text"),
    *("appendix", "eta gamma", "stable up to", "eta h at the end", "distance", "f"),
)


@dataclass(frozen=True)
class ToyFunctions(PaperResult):
    """Three agents on Rosenbrock's and Rastrigin's functions: paths, and the bounds of the theory."""

    def run_apart(
        self, seeds: int, folder: Path, stop: Stop, on_case: Callable[[int, int], None], scale: Scale
    ) -> None:
        """Run the functions and keep the rows, unless there are as many seeds already; raise Stopped when told to."""
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

    def write(self, sections: Sequence[Section], folder: Path) -> list[Path]:
        """Write page and pictures of what was run, and return their paths."""
        rows = stored_toy(folder)
        if not rows:
            return []
        pictures = write_toy_figures(rows, folder / PICTURES)
        page = folder / f"{self.name}.md"
        write_text(page, toy_page(rows, f"{PICTURES}/"))
        return [page, *pictures]

    def in_short(self, folder: Path) -> str:
        """Say how many of the paper's statements about the functions hold."""
        counts = Counter(claim.verdict for claim in toy_claims(stored_toy(folder)))
        hold, in_part, fail = (counts[word] for word in (HOLDS, IN_PART, FAILS))
        return f"{counts.total()} statements: {hold} hold, {in_part} hold in part, {fail} do not hold"


TOY = ToyFunctions("toy", "Rosenbrock and Rastrigin with 3 agents: paths and the bounds of the theory")


def stored_toy(folder: Path) -> list[Row]:
    """Return the stored rows, or none if the file is missing or damaged."""
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


# What the paper says.


@dataclass(frozen=True)
class ToyClaim:
    """Something that the paper says, whether these runs agree, and the numbers that decide."""

    text: str
    verdict: str
    because: str

    def __str__(self) -> str:
        return wrapped(f"- *{self.text}* **{self.verdict}**: {self.because}.", indent="  ")


def toy_claims(results: Sequence[Row]) -> list[ToyClaim]:
    """Return the verdicts, each computed from the rows."""
    if not results:
        return []
    claims = [_printed_step(results), _condition(results)]
    for name in _names(results):
        scaled = [row for row in results if row["function"] == name and row["scale"] != 1]
        finished = [row for row in scaled if row["average_gradient_squared"] is not None]
        bounded = [row for row in finished if row["bounds"][FORM]["value"] is not None]
        if finished:
            claims += [_converges(name, finished), _grows_with_delay(name, finished)]
        if name == "rosenbrock" and bounded:
            claims.append(_tight(name, bounded))
        if name == "rastrigin" and bounded:
            averages = {row["delay"]: row["average_gradient_squared"] for row in finished}
            claims.append(_mild("the differences between different delays are not large", "averages", averages))
            bounds = {row["delay"]: row["bounds"][FORM]["value"] for row in bounded}
            claims.append(_mild("the bounds for different delays differ mildly", "bounds", bounds))
    return [*claims, _valid(results)]


def _printed_step(results: Sequence[Row]) -> ToyClaim:
    rows = [row for row in results if row["scale"] == 1 and row["lr"] == PRINTED_LR]
    parts = []
    for name in _names(rows):
        own = [row for row in rows if row["function"] == name]
        fates: dict[str, list[int]] = {}
        for row in own:
            fates.setdefault(row["status"], []).append(row["delay"])
        said = ", ".join(f"{_delays(delays)} {status}" for status, delays in fates.items())
        limit = min(row["theorem_step_limit"] for row in own)
        parts.append(f"for {name.capitalize()} the theorem's limit 1/gamma is {limit:.2g} ({said})")
    verdict = _verdict([row["lr"] < row["theorem_step_limit"] for row in rows])
    return ToyClaim(f"A fixed step size according to Theorem 2, {PRINTED_LR:g}.", verdict, "; ".join(parts))


def _condition(results: Sequence[Row]) -> ToyClaim:
    """Theorem 2 asks for nothing but a step below 1/gamma."""
    allowed = [row for row in results if row["lr"] < row["theorem_step_limit"]]
    diverged = [row for row in allowed if row["status"] != "finished"]
    limits = {row["delay"]: row["stable_eta_h"] for row in results}
    because = f"{len(diverged)} of the {len(allowed)} cases with eta below 1/gamma diverged. In a bowl of curvature h"
    because += f" the agents settle only where eta h is below {_each(limits, '.2g')}"
    unscaled = [row for row in allowed if row["scale"] == 1]
    for lam in sorted({row["lam"] for row in unscaled}, reverse=True):
        fates = [row["status"] != "finished" for row in unscaled if row["lam"] == lam]
        because += f"; unscaled with lambda = {lam:g}, {sum(fates)} of {len(fates)} diverged"
    return ToyClaim("A step below 1/gamma is enough, whatever the delay.", _verdict([not diverged]), because)


def _converges(name: str, rows: Sequence[Row]) -> ToyClaim:
    left = {row["delay"]: row["final_gradient_squared"] / row["gradient_squared"][0] for row in rows}
    stuck = [delay for delay, share in left.items() if share > GONE]
    distance = statistics.fmean(row["distance_to_minimum"] for row in rows)
    because = f"in the last tenth, ‖∇F‖² over its first value is {_each(left, '.2g')}"
    because += f", so it does not converge at {_delays(stuck)}" if stuck else ""
    because += f"; the agents end {distance:.2f} from the minimum, on average over delays"
    verdict = _verdict([delay not in stuck for delay in left])
    return ToyClaim(f"{name.capitalize()}: the trajectories converge.", verdict, because)


def _grows_with_delay(name: str, rows: Sequence[Row]) -> ToyClaim:
    """Compare the mean over the whole run and over its last tenth.

    Seeds share start and noise between delays, so they are compared one by one: a difference of means on which not all
    seeds agree says nothing.
    """
    answers, parts = [], []
    for title, which in (("over all iterations", "average"), ("in the last tenth", "final")):
        means = {row["delay"]: row[f"{which}_gradient_squared"] for row in rows}
        pairs = itertools.pairwise(row[f"{which}_by_seed"] for row in rows)
        grows = [all(after > before for before, after in zip(*pair, strict=True)) for pair in pairs]
        answers += grows
        said = f"{sum(grows)} of {len(grows)} steps to the next delay"
        parts.append(f"{title} ‖∇F‖² is {_each(means, '.3g')}, and grows in every seed at {said}")
    text = f"{name.capitalize()}: when delay is large, the squared norm of the gradient is large."
    return ToyClaim(text, _verdict(answers), "; ".join(parts))


def _tight(name: str, rows: Sequence[Row]) -> ToyClaim:
    ratios = {row["delay"]: row["bounds"][FORM]["value"] / row["average_gradient_squared"] for row in rows}
    trivial = sum(row["bounds"][FORM]["value"] > row["largest_gradient_squared"] for row in rows)
    because = f"the bound over the mean is {_each(ratios, '.2g')}; at {trivial} of {len(rows)} delays it is above the"
    because += " largest ‖∇F‖² of the whole run"
    verdict = _verdict([ratio < TIGHT for ratio in ratios.values()])
    return ToyClaim(f"{name.capitalize()}: the results are nearly tight asymptotically.", verdict, because)


def _mild(text: str, what: str, values: dict[int, float]) -> ToyClaim:
    factor = max(values.values()) / min(values.values())
    because = f"the largest of the {what} is {factor:.3g} times the smallest ({_each(values, '.3g')})"
    return ToyClaim(f"Rastrigin: {text}.", _verdict([factor < MILD]), because)


def _valid(results: Sequence[Row]) -> ToyClaim:
    rows = [row for row in results if row["bounds"][FORM]["value"] is not None]
    kept = sum(row["average_gradient_squared"] <= row["bounds"][FORM]["value"] for row in rows)
    because = f"true in {kept} of the {len(rows)} cases that have a bound; {len(results) - len(rows)} have none"
    return ToyClaim("The mean squared gradient stays below the bound.", _verdict([kept == len(rows)]), because)


def _verdict(answers: Sequence[bool]) -> str:
    return HOLDS if all(answers) else IN_PART if any(answers) else FAILS


def _names(results: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["function"] for row in results))


def _each(values: dict[int, float], form: str) -> str:
    """Return 'VALUE, VALUE at delays 1, 5'."""
    return f"{', '.join(f'{value:{form}}' for value in values.values())} at {_delays(list(values))}"


def _delays(delays: Sequence[int]) -> str:
    return f"delay{'s' if len(delays) > 1 else ''} {', '.join(map(str, delays))}"


# The page.


def toy_page(results: Sequence[Row], images: str = "") -> str:
    """Return the page as Markdown; `images` stands before the names of the pictures."""
    lines = ["# Verification with simple functions", "", _setting(results[0]), "", _SAME_RUN, ""]
    lines += ["## What the paper says, and what these runs say", "", *map(str, toy_claims(results)), ""]
    for name in _names(results):
        title, of_page = name.capitalize(), f"{images}{name}"
        lines += [f"![{title}, scaled: trajectories, and mean squared gradients beside the bound]({of_page}.png)", ""]
        lines += [f"![{title} as it is: squared gradients by step]({of_page}-printed-step.png)", ""]
    return "\n".join([*lines, "## All runs", "", _TABLE_NOTE, "", *markdown_table(HEADINGS, map(_cells, results)), ""])


_SAME_RUN = "A function times s at step eta with lambda is the same run as the function at step s eta with s lambda."
_TABLE_NOTE = wrapped(
    "Mean ‖∇F‖²: over all iterations and seeds, ± the standard deviation over seeds. *Stable up to*: the largest eta h "
    "at which the linearised update is stable; Theorem 2 asks for eta gamma below 1 at every delay."
)


def _setting(head: Row) -> str:
    return wrapped(
        f"{sum(CLUSTERS)} agents in clusters of {' and '.join(map(str, CLUSTERS))} on a complete graph, two "
        f"dimensions, {head['steps']} iterations, {head['seeds']} seeds, PC-ASGD with theta = {head['theta']:g}. The "
        f"agents start on a circle of radius {APART:g}, turned by the seed. A gradient has normal noise of standard "
        f"deviation {head['noise'] / head['scale']:g} times the scale of the function on every "
        "coordinate. Start, noise, delays, theta and "
        "lambda are not in the paper. F is the sum of the agents' losses, each at its own state. gamma is the largest "
        "curvature on the path; of a run that diverged, at its start. h is the curvature where a run ended."
    )


def _cells(row: Row) -> list[str]:
    title = row["function"].capitalize() + ("" if row["scale"] == 1 else f" times {row['scale']:g}")
    derived, main_text, appendix = (row["bounds"][form] for form in (FORM, "main-text", "appendix"))
    spread = row["average_by_seed"]
    deviation = f" ± {statistics.stdev(spread):.2g}" if spread and len(spread) > 1 else ""
    return [
        *(title, f"{row['lam']:g}", f"{row['lr']:g}", str(row["delay"]), row["status"]),
        _number(row["average_gradient_squared"]) + deviation,
        _number(row["final_gradient_squared"]),
        f"none: {derived['reason'].partition(';')[0]}" if derived["reason"] else _number(derived["value"]),
        *(_number(main_text["value"]), _number(appendix["value"])),
        *(_number(row["lr"] * row["gamma"]), f"{row['stable_eta_h']:.2g}", _number(row["eta_h_end"])),
        *(_number(row["distance_to_minimum"]), _number(row["f_mean"])),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
