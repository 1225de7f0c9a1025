"""The study in seconds as a result: run, kept in OUT/data/time.jsonl, and written as a page with one picture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gossamer.engine.training import Stop
from gossamer.paper.cells import Scale
from gossamer.paper.findings import Section
from gossamer.paper.paper_result import PaperResult, markdown_table, wrapped
from gossamer.paper.time_study import TimedBed, TimeStudy, mean_seconds
from gossamer.report.style import COLOURS, GREY, save_picture, styled
from gossamer.state.checkpoint import write_text

SYNC = "sync"
SLOWER = 1.02  # a mean this many times another one is larger
ABOUT = """
CIFAR-10 with images of 8 x 8 pixels, an MLP with 64 hidden units, batch 32, plain SGD. Messages count as those
of a model of the size in the table. `tolerance=1`: messages of age 0 and 1 are current. Each algorithm has its
own learning rate of {rates}: the one that reaches the target first on held-out training data. Every
{evaluation} all agents are evaluated on 2,000 test images; the target is a mean accuracy of {target}."""


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
        """Say how often the synchronous rule is beaten."""
        study = _stored(folder)
        if study is None:
            return ""
        beaten = [bed.name for bed in study.scale.beds if faster_than_sync(study, bed)]
        return f"asynchronous algorithms are first on {len(beaten)} of {len(study.scale.beds)} testbeds"


TIME = TimeToAccuracy("time", "Seconds to an accuracy on five testbeds, every algorithm", "CIFAR-10 at quick and full")


def _file(folder: Path, scale_name: str) -> Path:
    return folder / "data" / ("time.jsonl" if scale_name != "smoke" else "time-smoke.jsonl")


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
    return {name: mean_seconds(rows) for name, rows in found.items() if rows}


def faster_than_sync(study: TimeStudy, bed: TimedBed) -> list[str]:
    """Return the algorithms that reach the target before the synchronous one, the fastest first."""
    times = times_on(study, bed)
    reached = sorted((seconds, name) for name, seconds in times.items() if seconds is not None and name != SYNC)
    limit = times.get(SYNC)
    return [name for seconds, name in reached if limit is None or seconds * SLOWER < limit]


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
    """Return a line for each testbed: who is first, and what waiting costs."""
    lines = []
    for bed in study.scale.beds:
        times = times_on(study, bed)
        reached = {name: seconds for name, seconds in times.items() if seconds is not None}
        if not reached:
            lines.append(f"* **{bed.name}:** no algorithm reaches the target.")
            continue
        first = min(reached, key=reached.__getitem__)
        waits = _waiting(study, bed)
        if first == SYNC:
            second = min((seconds, name) for name, seconds in reached.items() if name != SYNC)
            told = f"`sync` is first, after {reached[SYNC]:.0f} s; `{second[1]}` needs {second[0]:.0f} s"
        else:
            rival = reached.get(SYNC)
            factor = "" if rival is None else f"needs {rival:.0f} s, {rival / reached[first]:.1f} times as long"
            behind = factor or "does not reach it"
            told = f"`{first}` is first, after {reached[first]:.0f} s; `sync` {behind}"
        faster = len(faster_than_sync(study, bed))
        others = (
            f"{faster} of {len(times) - 1} algorithms are faster than `sync`, whose agents compute {waits} of the time"
        )
        lines.append(f"* **{bed.name}:** {told}. {others}.")
    return [wrapped(line, indent="  ") for line in lines]


def _waiting(study: TimeStudy, bed: TimedBed) -> str:
    rows = [row for row in study.finals(bed.name, SYNC) if row["goodput"] is not None]
    return f"{100 * sum(row['goodput'] for row in rows) / len(rows):.0f} %" if rows else "an unknown share"


def _table(study: TimeStudy) -> list[str]:
    beds = study.scale.beds
    times = {bed.name: times_on(study, bed) for bed in beds}
    names = list(dict.fromkeys(name for of_bed in times.values() for name in of_bed))
    first = {bed: min((s for s in of_bed.values() if s is not None), default=None) for bed, of_bed in times.items()}

    def cell(bed: TimedBed, name: str) -> str:
        rows = study.finals(bed.name, name)
        if not rows:
            return "-"
        if rows[0]["accuracy"] is None:
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
    return figure


def _draw_bed(panel: Axes, times: dict[str, float | None], names: Sequence[str], bed: TimedBed) -> None:
    for place, name in enumerate(names):
        seconds = times.get(name)
        if name not in times:
            continue
        colour = COLOURS[1] if name == SYNC else COLOURS[2]
        if seconds is None:
            panel.plot([bed.seconds], [place], marker="x", color=GREY, markersize=5)
        else:
            panel.plot([seconds], [place], marker="o", color=colour, markersize=6)
    if (limit := times.get(SYNC)) is not None:
        panel.axvline(limit, color=COLOURS[1], linewidth=0.8, linestyle=":")
    panel.set_xscale("log")
    panel.set_title(bed.name)
    panel.set_xlabel("seconds (x: not reached)")
