"""The chart of `gossamer stability`: the spectral radius over learning rates, the limit and the given rate."""

import numpy as np
from matplotlib.figure import Figure

from gossamer.algorithms import Algorithm
from gossamer.network import Network
from gossamer.report.style import COLOURS, DPI, GREY, styled
from gossamer.state.local import LocalOptimizer
from gossamer.theory.linear import PLAIN, over_rates
from gossamer.theory.reduced_past import spectral_radius
from gossamer.theory.stability import Stability

POINTS = 60


@styled
def draw_radius(
    algorithm: Algorithm,
    network: Network,
    lr: float,
    curvature: float,
    found: Stability,
    local: LocalOptimizer = PLAIN,
) -> Figure:
    """Draw the spectral radius from 1/100 of the smaller to twice the larger of limit and rate."""
    limit = found.largest_stable_lr if found.largest_stable_lr and np.isfinite(found.largest_stable_lr) else lr
    rates = np.sort([*np.geomspace(min(limit, lr) / 100, 2 * max(limit, lr), POINTS), lr])
    at_rate = over_rates(algorithm, network, curvature, local)
    radii = [spectral_radius(at_rate(float(rate))) for rate in rates]
    figure = Figure(figsize=(8, 4.6), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(rates, radii, color=COLOURS[0])
    axes.axhline(1, color=GREY, linewidth=1)
    axes.plot([lr], [found.spectral_radius], "o", color=COLOURS[1], label=f"lr {lr:g}: {found.spectral_radius:.4g}")
    if found.largest_stable_lr and np.isfinite(found.largest_stable_lr):
        axes.axvline(limit, color=GREY, linestyle="--", linewidth=1, label=f"limit: lr {limit:.4g}")
    axes.set_xscale("log")
    axes.set_ylim(min(0.9, float(np.min(radii)) - 0.02), min(2.0, max(1.1, float(np.max(radii)))))
    axes.set_xlabel("learning rate")
    axes.set_ylabel("spectral radius per step")
    axes.set_title(f"{algorithm.name} on {network.spec}, delay {network.delay.as_json()}, curvature {curvature:g}")
    axes.legend()
    return figure
