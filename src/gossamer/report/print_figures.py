"""The charts of a report as PNG and SVG for papers, readable in black and white and by the colour-blind."""

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from gossamer.errors import UserError
from gossamer.report.axes import CLOCK, usual_axis
from gossamer.report.curves import CHARTS, as_runs, by_cluster
from gossamer.report.grouping import settings_of
from gossamer.report.network_view import drawings_of, mean_ages
from gossamer.report.plots import draw_curves, draw_network
from gossamer.report.read_runs import RunRecord
from gossamer.report.runs import fold
from gossamer.report.spells_picture import draw_timeline
from gossamer.report.style import DPI, styled
from gossamer.run.folder import make_folder, safe_name
from gossamer.state.checkpoint import write_bytes

MAKER = "gossamer report"  # in the metadata of each figure: such a file may be overwritten
FEW = 16  # with at most this many agents every square shows its age as a number
# One hue that gets darker, readable in grey.
AGE_COLOURS = LinearSegmentedColormap.from_list("age", ["#f4f1ec", "#f4b35a", "#e07f24", "#ad4a0c", "#5e2206"])


def write_figures(folder: Path, runs: Sequence[RunRecord]) -> list[Path]:
    """Write every chart as PNG and SVG and return the paths; only older figures of a report are overwritten."""
    files = {folder / f"{name}.{kind}": figure for name, figure in _figures(runs).items() for kind in ("png", "svg")}
    for path in files:
        if path.exists() and MAKER.encode() not in path.read_bytes()[:4096]:
            raise UserError(f"'{path}' exists and is not a figure of a report; choose another --figures")
    make_folder(folder, "--figures")
    for path, figure in files.items():
        write_bytes(path, _drawn(figure, path.suffix[1:]), "make room, or choose another --figures")
    return list(files)


def _drawn(figure: Figure, kind: str) -> bytes:
    """Return the bytes of a figure; the same runs give the same bytes."""
    metadata = {"Software": MAKER} if kind == "png" else {"Creator": MAKER, "Date": None}
    file = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": MAKER}):
        figure.savefig(file, format=kind, facecolor="white", metadata=metadata)
    return file.getvalue()


def _figures(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    settings = settings_of(runs)
    figures = {}
    timed = usual_axis(run.rows for run in runs).key == CLOCK
    for name in CHARTS:
        shown = by_cluster(runs, settings) if name == "predict" else as_runs(runs, settings)
        if any(len(curve.marks) for curve in fold(shown, name)):
            figures[name.replace("_", "-")] = draw_curves(shown, name, axis="iterations")
            if timed:
                figures[f"{name.replace('_', '-')}-seconds"] = draw_curves(shown, name, axis=CLOCK)
    drawings, numbers = drawings_of(runs)
    for number in range(len(drawings)):
        suffix = "" if len(drawings) == 1 else f"-{number + 1}"
        figures[f"network{suffix}"] = draw_network(runs[numbers.index(number)].network)
    for setting in settings:
        run = runs[setting.members[0]]
        ages, suffix = mean_ages(run), "" if len(settings) == 1 else f"-{safe_name(setting.label)}"
        title = f"{setting.label}, seed {run.values['seed']}"
        if ages is not None:
            figures[f"ages{suffix}"] = draw_ages(ages, title)
        if run.timeline is not None:
            figures[f"timeline{suffix}"] = draw_timeline(run.timeline, title)
    return figures


@styled
def draw_ages(ages: Sequence[Sequence[float | int | None]], title: str) -> Figure:
    """Draw the mean age of the messages that each agent (row) held of each other agent (column)."""
    values = np.array([[np.nan if age is None else age for age in row] for row in ages], dtype=np.float64)
    few, oldest = len(values) <= FEW, max(1.0, float(np.nanmax(values, initial=0.0)))
    figure = Figure(figsize=(6.2, 5.2), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(values, cmap=AGE_COLOURS, vmin=0.0, vmax=oldest)
    axes.grid(visible=False)
    axes.set(xlabel="sender", ylabel="receiver", title=f"Message ages in iterations\n{title}")
    figure.colorbar(image, ax=axes, shrink=0.8)
    if few:
        axes.set(xticks=range(len(values)), yticks=range(len(values)))
        for (i, k), age in np.ndenumerate(values):
            if np.isfinite(age):
                colour = "white" if age > 0.6 * oldest else "black"
                axes.text(k, i, f"{age:.3g}", ha="center", va="center", fontsize=9, color=colour)
    return figure
