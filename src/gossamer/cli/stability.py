"""`gossamer stability`: check whether an algorithm is stable at a learning rate, without training."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gossamer.cli.descriptions import read_descriptions
from gossamer.cli.display import print_json, print_lines
from gossamer.cli.flags import NETWORK_FLAGS, Json, takes_settings
from gossamer.cli.network import check_new
from gossamer.errors import UserError

if TYPE_CHECKING:
    from gossamer.network import Network
    from gossamer.run.settings import Settings
    from gossamer.theory.stability import Stability

_USED = {*NETWORK_FLAGS, "algorithm", "lr", "momentum", "nesterov"} - {
    "delay_unit",
    "loss",
    "startup",
    "graph_schedule",
}


@takes_settings(*(name for name in read_descriptions()["settings"] if name not in _USED))
def stability(
    curvature: Annotated[
        float, typer.Option(help="Largest eigenvalue of the loss's Hessian; `gossamer bounds` measures it as gamma.")
    ] = 1.0,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the spectral radius over learning rates into this .png or .svg file.")
    ] = None,
    json: Json = False,
    *,
    given: dict[str, Any],
) -> None:
    """Check whether an algorithm is stable at a learning rate, from the spectral radius of its linearised update.

    Works on any network with fixed delays, for every rule whose update on a quadratic is linear and the same at each
    step. It ignores noise and assumes the curvature you give: "stable" means that training can work, not that it will.

    Example: gossamer stability --network paper-1 --delay 20 --algorithm p-asgd --lr 0.2 --curvature 1
    """
    from gossamer.algorithms import algorithm as make_algorithm  # imports torch, which --help does not need
    from gossamer.run.merge_settings import merge_settings
    from gossamer.state.local import LocalOptimizer
    from gossamer.theory.stability import stability as analyse

    settings = merge_settings(given)
    rule, net = make_algorithm(settings.algorithm, **settings.options), _network(settings)
    check_new(picture, (".png", ".svg", ".pdf"))
    local = LocalOptimizer(momentum=settings.momentum, nesterov=settings.nesterov)
    found = analyse(rule, net, settings.lr, curvature, local)
    if picture is not None:
        from gossamer.report.stability_chart import draw_radius  # matplotlib is slow to import

        draw_radius(rule, net, settings.lr, curvature, found, local).savefig(picture)
    if json:
        shown = {"network": net.spec, "delay": net.delay.as_json(), "algorithm": rule.name, "options": settings.options}
        print_json({**shown, "lr": settings.lr, "curvature": curvature, **found.as_dict()})
        return
    print_lines(
        {
            "setting": f"{rule.name} on {net.spec}, delay {net.delay.as_json()}, lr {settings.lr:g}, "
            f"curvature {curvature:g}",
            "verdict": "stable" if found.stable else "unstable: it will diverge",
            "radius": f"{found.spectral_radius:.6g} per step"
            + ("" if found.half_life is None else f", a disturbance halves in {found.half_life:.3g} steps"),
            "limit": _limit(found, curvature),
            "pace": "-" if found.pace is None else f"{found.pace:.4g} of synchronous training along small gradients",
            "noise": _noise(found.noise),
        }
    )


def _limit(found: "Stability", curvature: float) -> str:
    low, high = found.smallest_stable_lr, found.largest_stable_lr
    if low is None or high is None:
        return "no learning rate is stable"
    if math.isinf(high):
        return "stable at every learning rate tried"
    begins = f"from lr {low:.4g} " if low else ""
    return f"stable {begins}up to lr {high:.4g} (lr times curvature {high * curvature:.4g})"


def _noise(noise: tuple[float, ...] | None) -> str:
    if noise is None:
        return "not known for this rule"
    low, high = min(noise), max(noise)
    return f"{low:.4g}" + (f" to {high:.4g}" if high > low else "") + " times the variance of an agent's own noise"


def _network(settings: "Settings") -> "Network":
    """Make the network; discover the clusters if none are given."""
    from gossamer.network import broadcast
    from gossamer.run.plan import make_network

    net = make_network(settings)
    if net.num_agents < 2:
        raise UserError(f"network '{net.spec}' has {net.num_agents} agent; use 2 or more")
    return net if net.clusters is not None else net.with_clusters(broadcast(net, settings.seed).clusters)
