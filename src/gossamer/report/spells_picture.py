"""The picture of a timeline: a row of bars for each agent, and a line for each message."""

from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from gossamer.report.agent_spells import FILLS, KINDS, MESSAGES, AgentTimeline, Spell
from gossamer.report.plots import Picture
from gossamer.report.style import DPI, GREY, styled

HALF = 0.32  # of the height of a bar; between the rows lines are visible
TALLEST = 12.0  # inches


@styled
def draw_timeline(timeline: AgentTimeline, title: str) -> Figure:
    """Draw the first iterations: what each agent did, and each message from its sending to its arrival."""
    until = timeline.window
    spells = [spell for spell in timeline.spells if spell.begin < until]
    flights = [flight for flight in timeline.flights if flight.begin < until]
    agents = 1 + max((spell.agent for spell in spells), default=0)
    figure = Picture(figsize=(9.0, min(1.7 + 0.32 * agents, TALLEST)), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    handles: list[Patch | Line2D] = []
    for kind in KINDS:
        bars = [_corners(spell) for spell in spells if spell.kind == kind]
        if bars:
            axes.add_collection(PolyCollection(bars, facecolors=FILLS[kind], edgecolors="white", linewidths=0.6))
            handles.append(Patch(facecolor=FILLS[kind], label=kind))
    if flights:
        lines = [((flight.begin, flight.sender), (flight.end, flight.receiver)) for flight in flights]
        axes.add_collection(LineCollection(lines, colors=MESSAGES, linewidths=0.5, alpha=0.6))
        handles.append(Line2D([], [], color=MESSAGES, linewidth=0.8, label="message, from its sending to its arrival"))
    axes.set(xlim=(0.0, until or 1.0), ylim=(agents - 0.4, -0.6), xlabel="simulated seconds", ylabel="agent")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=16, integer=True, min_n_ticks=1))
    axes.grid(visible=False)
    axes.set_title(title)
    figure.legend(handles=handles, loc="outside lower center", ncols=4, labelcolor=GREY)
    return figure


def _corners(spell: Spell) -> list[tuple[float, float]]:
    top, bottom = spell.agent - HALF, spell.agent + HALF
    return [(spell.begin, top), (spell.end, top), (spell.end, bottom), (spell.begin, bottom)]
