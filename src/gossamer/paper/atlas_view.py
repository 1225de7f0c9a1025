"""The atlas as a map of colours: algorithms down, delays across."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gossamer.paper.atlas import Chart, charts_of
from gossamer.paper.findings import Section
from gossamer.report.style import DPI

COLOURS_BY_HEIGHT = "viridis"  # even in brightness, for the colour-blind too
PALE = 0.6  # the share of its range from which on black is read more easily than white


def draw_atlas(sections: Sequence[Section]) -> Figure:
    """Draw a map for each way to deal out the data, with the accuracies in it."""
    charts = [chart for section in sections for chart in charts_of(section)]
    rows = max(len(chart.outcomes) for chart in charts)
    figure = Figure(figsize=(7.2 * len(charts), 1.9 + 0.3 * rows), dpi=DPI, layout="constrained")
    heights = [outcome.mean for chart in charts for row in chart.outcomes.values() for outcome in row.values()]
    for place, chart in enumerate(charts):
        axes = figure.add_subplot(1, len(charts), place + 1)
        axes.set_title(chart.part)
        _fill(axes, chart, min(heights), max(heights))
    return figure


def _fill(axes: Axes, chart: Chart, low: float, high: float) -> None:
    """Colour all charts alike, so that they can be compared."""
    values = np.full((len(chart.outcomes), len(chart.delays)), np.nan)
    for down, outcomes in enumerate(chart.outcomes.values()):
        for across, delay in enumerate(chart.delays):
            if delay in outcomes:
                values[down, across] = outcomes[delay].mean
    axes.imshow(values, aspect="auto", cmap=COLOURS_BY_HEIGHT, vmin=low, vmax=max(high, low + 1e-9))
    for (down, across), value in np.ndenumerate(values):
        if not np.isnan(value):
            pale = value - low > PALE * (high - low)
            colour = "black" if pale else "white"
            axes.text(across, down, f"{value:.1f}", ha="center", va="center", fontsize=8.5, color=colour)
    axes.set_yticks(range(len(chart.outcomes)), list(chart.outcomes))
    axes.set_xticks(range(len(chart.delays)), list(map(str, chart.delays)))
    axes.set_xlabel("delay tau; test accuracy in %")
    axes.grid(visible=False)
