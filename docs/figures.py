"""Draw the pictures of paper-in-pictures.md from small computations: `python docs/figures.py`.

Eight agents in the paper's clusters of 3 and 5. Each cluster has its own target, as with its own data; its loss is half
the squared distance from the target. The common optimum is the mean of the eight targets.
"""

import functools
import json
import sys
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gossamer as gm
from gossamer.report.style import GREY, styled

FOLDER = Path(__file__).parent / "images" / "paper"
DELAY, RATE, STEPS = 20, 0.01, 600
SIZES = (3, 5)
TARGETS = torch.tensor([[1.0, 0.2]] * SIZES[0] + [[0.2, 1.0]] * SIZES[1], dtype=torch.float64)
OPTIMUM = TARGETS.mean(dim=0)
START = [0.0, 0.0]
PRODUCTS = (0.5, 1.8, 2.6)  # rate times delay
NAMES = {
    "sync": "no delay",
    "d-asgd": "D: average late models",
    "p-asgd": "P: predict",
    "c-asgd": "C: clip",
    "pc-asgd/theta=0.3": "PC: 30 % P, 70 % C",
    "dm-asgd": "DM: matched differences",
}
DPI = 110


@functools.cache
def run(algorithm: str, lr: float = RATE, *, one_target: bool = False) -> torch.Tensor:
    """Return the path of both clusters' mean models, [steps + 1, 2, 2]."""
    network = gm.network("clusters:3,5", delay=DELAY)
    targets = OPTIMUM.expand_as(TARGETS) if one_target else TARGETS
    path = gm.trajectory(algorithm, network, lambda x, t: x - targets, START, lr=lr, steps=STEPS)
    return torch.stack([path[:, : SIZES[0]].mean(dim=1), path[:, SIZES[0] :].mean(dim=1)], dim=1)


def predicted(product: float) -> torch.Tensor:
    """Return P-ASGD's path for this product of rate and delay, with one target for all agents."""
    return run("p-asgd/lam=0", product / DELAY, one_target=True)


def distance(path: torch.Tensor) -> torch.Tensor:
    """Return the distance of the average model from the common optimum at each step."""
    average = (SIZES[0] * path[:, 0] + SIZES[1] * path[:, 1]) / sum(SIZES)
    return (average - OPTIMUM).norm(dim=-1)


def apart(path: torch.Tensor) -> torch.Tensor:
    """Return the distance between the two clusters at each step."""
    return (path[:, 0] - path[:, 1]).norm(dim=-1)


@styled
def draw_paths() -> Figure:
    """Draw the paths of both clusters under each rule."""
    figure = Figure(figsize=(9.6, 6.6), dpi=DPI, layout="constrained")
    for axes, (rule, name) in zip(figure.subplots(2, 3, sharex=True, sharey=True).flat, NAMES.items(), strict=True):
        path = run(rule)
        for cluster, (dash, marker) in enumerate(((":", "s"), ("-", "o"))):
            x, y = path[:, cluster].T
            axes.plot(x, y, dash, color="black", lw=1.5)
            axes.plot(x[::50], y[::50], marker, color="black", mfc="white", ms=4.5, ls="")
            axes.plot(*TARGETS[cluster * SIZES[0]], marker, color="#0072B2", ms=9)
        axes.plot(*OPTIMUM, "*", color="#D55E00", ms=15)
        axes.set_title(name)
        axes.set_aspect("equal")
        axes.grid(visible=False)
    return figure


@styled
def draw_pace() -> Figure:
    """Draw the distance from the optimum: the cost of averaging late models."""
    figure = Figure(figsize=(7.6, 3.9), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    lines = (("sync", "-", 4.0, "#BBBBBB"), ("d-asgd", "--", 1.8, "black"), ("dm-asgd", ":", 2.2, "black"))
    for rule, dash, width, colour in lines:
        axes.plot(distance(run(rule)), dash, lw=width, color=colour, label=NAMES[rule])
    _finish(axes, "Distance of the average model from the optimum")
    return figure


@styled
def draw_predicting() -> Figure:
    """Draw the effect of predicting for growing products of rate and delay."""
    figure = Figure(figsize=(7.6, 3.9), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    for product, dash in zip(PRODUCTS, ("-", ":", "--"), strict=True):
        axes.plot(distance(predicted(product)), dash, color="black", label=f"rate x delay = {product}")
    _finish(axes, "P-ASGD with one target for all: distance from the target")
    axes.set(yscale="log", ylim=(1e-6, 1e3))
    return figure


@styled
def draw_meeting() -> Figure:
    """Draw the distance between the clusters."""
    figure = Figure(figsize=(7.6, 3.9), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    for rule, dash in (("c-asgd", "--"), ("pc-asgd/theta=0.3", "-."), ("dm-asgd", ":"), ("sync", "-")):
        axes.plot(apart(run(rule)), dash, color="black", label=NAMES[rule])
    _finish(axes, "Distance between the clusters")
    return figure


@styled
def draw_same_age() -> Figure:
    """Draw one late message of two agents, as averaging and as a matched difference use it."""
    path = gm.trajectory("c-asgd", gm.network("clusters:1,1", delay=DELAY), _two_slopes, [0.0], lr=0.02, steps=60)
    own, other, now = path[:, 0, 0], path[:, 1, 0], 50
    then = now - DELAY
    figure = Figure(figsize=(7.6, 4.2), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(own, "-", color="black", label="this agent")
    axes.plot(other, "--", color="black", label="its neighbour")
    axes.plot([then, now], [other[then]] * 2, ":", color=GREY)
    axes.plot(then, other[then], "o", color="black", mfc="white", ms=8)
    _arrow(axes, now, own[now], other[then], "averaging sees\nmostly the agent's\nown progress", (6, -52))
    _arrow(axes, then, own[then], other[then], "a matched difference sees\nthe distance at that step", (-150, 30))
    axes.set(xlabel="step", ylabel="a parameter")
    axes.legend(loc="upper left")
    axes.set_title(f"A message that is {DELAY} steps old")
    return figure


def _two_slopes(x: torch.Tensor, t: int) -> torch.Tensor:
    """Return constant gradients: two agents on the same slope, one of them a little faster."""
    return torch.tensor([[-1.0], [-1.25]], dtype=x.dtype)


def _arrow(axes: Axes, at: int, start: torch.Tensor, end: torch.Tensor, text: str, shift: tuple[int, int]) -> None:
    axes.annotate("", (at, float(end)), (at, float(start)), arrowprops={"arrowstyle": "-|>", "lw": 2.2})
    axes.annotate(text, (at, float(start + end) / 2), shift, textcoords="offset points", fontsize=10)


def _finish(axes: Axes, title: str) -> None:
    axes.set_title(title)
    axes.set_xlabel("step")
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, STEPS)
    axes.legend()


FIGURES = {
    "paths": draw_paths,
    "pace": draw_pace,
    "predicting": draw_predicting,
    "meeting": draw_meeting,
    "same-age": draw_same_age,
}


def numbers() -> dict[str, dict[str, float]]:
    """Return the numbers that the page states about the pictures, at the last step."""
    paths = {rule: run(rule) for rule in NAMES}
    predictions = {str(product): distance(predicted(product)) for product in PRODUCTS}
    return {
        "far": {rule: float(distance(path)[-1]) for rule, path in paths.items()},
        "apart": {rule: float(apart(path)[-1]) for rule, path in paths.items()},
        "predicted": {product: float(path[-1]) for product, path in predictions.items()},
        "swings": {product: int((path.diff() > 0).sum()) for product, path in predictions.items()},
    }


def main(folder: Path) -> None:
    """Write all pictures, and print their numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        draw().savefig(folder / f"{name}.png", metadata={"Software": None})
    print(json.dumps(numbers()))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
