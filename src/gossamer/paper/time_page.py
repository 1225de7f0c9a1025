"""The study in seconds as a result: run, kept in OUT/data/time, and written as a page with one picture."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from gossamer.algorithms import algorithm_class
from gossamer.engine.training import Stop
from gossamer.paper.cells import Scale
from gossamer.paper.findings import Section
from gossamer.paper.paper_result import PaperResult, markdown_table, wrapped
from gossamer.paper.time_study import STRICT, TimedBed, TimeStudy, mean_seconds
from gossamer.report.style import COLOURS, GREY, save_picture, styled
from gossamer.state.checkpoint import write_text

SYNC = "sync"
SLOWER = 1.02  # a mean this many times another one is larger
ABOUT = """
CIFAR-10 with images of 8 x 8 pixels, an MLP with 64 hidden units, batch 32, plain SGD. Messages count as those
of a model of the size in the table. `tolerance=1`: messages of age 0 and 1 are current. Each algorithm has its
own learning rate of {rates}: the one that reaches the target first on held-out training data. Every
{evaluation} all agents are evaluated on 2,000 test images; the target is a mean accuracy of {target}. `cdmsgd`,
`delayed-nesterov` and `adaptive-braking` have a momentum of their own. Rows with *tolerance 0* take only messages of
age 0 as current: on a LAN agents of equal speed are in step, and all messages are one step old. A rule with a server
cannot run where an agent has no link with it."""


@dataclass(frozen=True)
class TimeToAccuracy(PaperResult):
    """Seconds to an accuracy of every algorithm on every testbed."""

    @property
    def page_name(self) -> str:
        """The name of its page."""
        return "time-to-accuracy"

    def run_apart(
        self, seeds: int, folder: Path, stop: Stop, on_case: Callable[[int, int], None], scale: Scale
    ) -> None:
        """Make the runs that are missing; raise Stopped when told to."""
        TimeStudy(_file(folder, scale.name), scale.name, seeds).complete(stop, on_case)

    def write(self, sections: Sequence[Section], folder: Path) -> list[Path]:
        """Write the page and its picture from the stored runs of the larger scale, and return their paths."""
        study = _stored(folder)
        if study is None:
            return []
        page, picture = folder / f"{self.page_name}.md", folder / f"{self.page_name}.png"
        save_picture(draw_times(study), picture)
        write_text(page, to_page(study, picture.name))
        return [page, picture]

    def in_short(self, folder: Path) -> str:
        """Say where asynchronous algorithms are first."""
        study = _stored(folder)
        if study is None:
            return ""
        firsts = [fastest(times_on(study, bed)) for bed in study.scale.beds]
        count = sum(first is not None and not waits(first) for first in firsts)
        return f"an asynchronous algorithm is first on {count} of {len(firsts)} testbeds"


TIME = TimeToAccuracy("time", "Seconds to an accuracy on five testbeds, every algorithm", "CIFAR-10 at quick and full")


def _file(folder: Path, scale_name: str) -> Path:
    return folder / "data" / "time" / f"{'smoke' if scale_name == 'smoke' else 'quick'}.jsonl"


def _stored(folder: Path) -> TimeStudy | None:
    """Return the study of the larger scale that has runs."""
    for name in ("quick", "smoke"):
        rows = TimeStudy(_file(folder, name), name, 1).rows
        seeds = 1 + max((row["seed"] for row in rows if not row["search"]), default=-1)
        if seeds > 0:
            return TimeStudy(_file(folder, name), name, seeds)
    return None


def times_on(study: TimeStudy, bed: TimedBed) -> dict[str, float | None]:
    """Return each algorithm's mean seconds to the target on a testbed, of those that were run."""
    found = {name: study.finals(bed.name, name) for where, name in study.cells if where == bed.name}
    return {name: mean_seconds(rows) for name, rows in found.items() if rows and rows[0]["accuracy"] is not None}


def waits(name: str) -> bool:
    """Say whether an algorithm is synchronous: it waits for its neighbours."""
    return algorithm_class(name.removesuffix(STRICT)).waits


def fastest(times: Mapping[str, float | None]) -> str | None:
    """Return the algorithm that reaches the target first; None if none does."""
    reached = {name: seconds for name, seconds in times.items() if seconds is not None}
    return min(reached, key=reached.__getitem__) if reached else None


def to_page(study: TimeStudy, picture: str) -> str:
    """Return the page as Markdown."""
    scale = study.scale
    lines = ["# Time to accuracy", "", *_verdict(study), "", f"![seconds to the target]({picture})", ""]
    lines += ["## Testbeds", ""]
    rows = [
        [bed.name, f"`{bed.testbed}`", f"`{bed.network}`", f"{bed.step_seconds:g}", f"{bed.seconds:g}"]
        for bed in scale.beds
    ]
    lines += [*markdown_table(["testbed", "text", "network", "seconds of an iteration", "longest run, s"], rows), ""]
    rates = ", ".join(f"{lr:g}" for lr in scale.rates)
    about = ABOUT.format(rates=rates, target=scale.target, evaluation="10 iterations")
    lines += [wrapped(" ".join(about.split())), "", "## Seconds to the target", ""]
    note = (
        f"Mean over seeds 0 to {study.seeds - 1} (learning rate). *Not reached*: by some seed, within the longest run. "
        "The first of each testbed is bold."
    )
    lines += [wrapped(note), ""]
    lines += [*_table(study), "", "```", "gossamer reproduce time --scale quick", "```"]
    return "\n".join(lines) + "\n"


def _verdict(study: TimeStudy) -> list[str]:
    """Return when asynchronous training pays, and a line for each testbed."""
    found = [(bed, times_on(study, bed)) for bed in study.scale.beds]
    gains = [gain for bed, times in found if (gain := _gain(study, bed, times)) is not None]
    listed = ", ".join(text for _, text in sorted(gains, key=lambda gain: -gain[0]))
    head = (
        "Asynchronous training pays by the time that synchronous agents wait. The share of the time that the agents of "
        f"`sync` compute, and how many times as long as the fastest asynchronous algorithm it takes: {listed}."
    )
    lines = [wrapped(head), ""]
    for bed, times in found:
        first = fastest(times)
        if first is None:
            lines.append(f"* **{bed.name}:** no algorithm reaches the target.")
            continue
        rivals = {name: seconds for name, seconds in times.items() if not waits(name)}
        quick = [name for name, seconds in rivals.items() if seconds is not None and _beats(seconds, times.get(SYNC))]
        kind = ", which is synchronous too" if waits(first) and first != SYNC else ""
        told = f"`{first}` is first, after {times[first]:.0f} s{kind}; `sync` {_takes(times.get(SYNC))}"
        told += f". {len(quick)} of {len(rivals)} asynchronous algorithms are faster than `sync`."
        lines.append(wrapped(f"* **{bed.name}:** {told}", indent="  "))
    return lines


def _beats(seconds: float, other: float | None) -> bool:
    return other is None or seconds * SLOWER < other


def _takes(seconds: float | None) -> str:
    return "does not reach the target" if seconds is None else f"takes {seconds:.0f} s"


def _gain(study: TimeStudy, bed: TimedBed, times: Mapping[str, float | None]) -> tuple[float, str] | None:
    """Return the share that synchronous agents compute, and what the fastest other one gains, in words."""
    rows = [row for row in study.finals(bed.name, SYNC) if row["goodput"] is not None]
    first = fastest({name: seconds for name, seconds in times.items() if not waits(name)})
    if not rows or first is None:
        return None
    share, sync, quickest = sum(row["goodput"] for row in rows) / len(rows), times.get(SYNC), times[first]
    assert quickest is not None
    factor = f"more than {bed.seconds / quickest:.0f}" if sync is None else f"{sync / quickest:.1f}"
    return share, f"{bed.name} {100 * share:.0f} %, {factor}"


def _table(study: TimeStudy) -> list[str]:
    beds = study.scale.beds
    times = {bed.name: times_on(study, bed) for bed in beds}
    names = list(dict.fromkeys(name for _, name in study.cells))
    first = {bed: min((s for s in of_bed.values() if s is not None), default=None) for bed, of_bed in times.items()}

    def cell(bed: TimedBed, name: str) -> str:
        rows = study.finals(bed.name, name)
        if not rows:
            return "-"
        if name not in times[bed.name]:
            return "cannot run"
        seconds = times[bed.name][name]
        text = "not reached" if seconds is None else f"{seconds:.0f}"
        return f"{f'**{text}**' if seconds == first[bed.name] and seconds is not None else text} ({rows[0]['lr']:g})"

    rows = [[f"`{name}`", *(cell(bed, name) for bed in beds)] for name in names]
    return markdown_table(["algorithm", *(bed.name for bed in beds)], rows)


@styled
def draw_times(study: TimeStudy) -> Figure:
    """Draw the seconds to the target: a panel for each testbed, a row for each algorithm."""
    beds = study.scale.beds
    names = list(dict.fromkeys(name for _, name in study.cells))
    figure = Figure(figsize=(3.2 * len(beds) + 1.2, 0.26 * len(names) + 1.4), layout="constrained")
    panels = figure.subplots(1, len(beds), sharey=True, squeeze=False)[0]
    for panel, bed in zip(panels, beds, strict=True):
        _draw_bed(panel, times_on(study, bed), names, bed)
    panels[0].set_yticks(range(len(names)), names, fontsize=9)
    panels[0].invert_yaxis()
    figure.supxlabel("orange: synchronous; blue: asynchronous; cross: not reached within the longest run", fontsize=10)
    return figure


def _draw_bed(panel: Axes, times: dict[str, float | None], names: Sequence[str], bed: TimedBed) -> None:
    for place, name in enumerate(names):
        seconds = times.get(name)
        if name not in times:
            continue
        colour = COLOURS[1] if waits(name) else COLOURS[2]
        if seconds is None:
            panel.plot([bed.seconds], [place], marker="x", color=GREY, markersize=5)
        else:
            panel.plot([seconds], [place], marker="o", color=colour, markersize=6)
    if (limit := times.get(SYNC)) is not None:
        panel.axvline(limit, color=COLOURS[1], linewidth=0.8, linestyle=":")
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_title(bed.name)
    panel.set_xlabel("seconds")
