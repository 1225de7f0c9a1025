"""The look of all figures: sizes, colours for the colour-blind, and one matplotlib style."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from gossamer.report.network_picture import FILLS as FILLS
from gossamer.report.network_picture import LATE as LATE

DPI = 150
OVERVIEW_DPI = 120  # it is wide

Dashes = tuple[float, tuple[float, ...]]  # an offset, then lengths on and off; none for a solid line

# Okabe and Ito's colour-blind-safe colours without yellow, which is too pale for a line. Colours, dashes and markers
# repeat at different intervals, so no two of the first 280 labels look the same.
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9")
DASHES: tuple[Dashes, ...] = (
    (0.0, ()),
    (0.0, (5.0, 1.5)),
    (0.0, (1.2, 1.2)),
    (0.0, (5.0, 1.5, 1.2, 1.5)),
    (0.0, (7.0, 1.3, 1.0, 1.3, 1.0, 1.3)),
)
MARKERS = "osD^vPX*"
RELIABLE, GREY = "#333333", "#555555"


def line_style(index: int) -> dict[str, Any]:
    """Return colour, dashes and marker of a line, the same in all pictures."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": 6,
        "markeredgecolor": "white",
        "markeredgewidth": 0.5,
        "linewidth": 1.7,
    }


def save_picture(figure: Any, path: Any, **more: Any) -> None:
    """Write a figure as a small PNG, to a path or a file."""
    figure.savefig(path, format="png", facecolor="white", pil_kwargs={"optimize": True}, **more)


STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#E4E4E4",
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.constrained_layout.wspace": 0.03,
    "figure.constrained_layout.hspace": 0.03,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "text.usetex": False,
}


Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


def styled(draw: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Draw with STYLE; the caller's own style does not change."""

    @functools.wraps(draw)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
        import matplotlib as mpl  # slow to import, and the colours do not need it

        with mpl.rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn
