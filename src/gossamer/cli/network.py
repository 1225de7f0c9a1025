"""`gossamer network`: inspect a network before training on it."""

import json as json_module
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from gossamer.cli.display import out, print_json
from gossamer.errors import UserError

if TYPE_CHECKING:
    from gossamer.network import Network


def network(
    spec: Annotated[
        str | None,
        typer.Argument(help="A network such as paper-1, clusters:3,5 or ring:8; without one, list all kinds."),
    ] = None,
    delay: Annotated[
        str | None, typer.Option(help="Delay in steps, such as 20, uniform:5,60, geometric:0.1 or trace:FILE.")
    ] = None,
    clusters: Annotated[str | None, typer.Option(help="Reliable clusters: sizes '3,5' or members '0,1,2/3,4'.")] = None,
    loss: Annotated[float, typer.Option(help="Probability that a message is lost.")] = 0.0,
    mixing: Annotated[str, typer.Option(help="Mixing weights W: metropolis or uniform.")] = "metropolis",
    lazy: Annotated[bool, typer.Option(help="Mix with (I + W) / 2 instead of W.")] = False,
    clip_weights: Annotated[
        str, typer.Option(help="Weights of the clipping step: rebuilt or renormalised.")
    ] = "rebuilt",
    discover: Annotated[bool, typer.Option(help="Find clusters and delay from observed message ages.")] = False,
    seed: Annotated[int, typer.Option(help="Random seed of the delays that --discover observes.")] = 0,
    save: Annotated[Path | None, typer.Option(help="Write the network to this new .json file.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw the network into this .png, .svg or .pdf file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Show a network: agents, links, clusters, and whether its mixing matrices satisfy the paper's Assumption 2.

    Example: gossamer network paper-1 --delay 20
    """
    if spec is None:
        _list_kinds(json)
        return
    from gossamer.network import Trace, broadcast  # imports torch, which --help does not need
    from gossamer.network import network as make_network

    net = make_network(spec, delay, clusters=clusters, loss=loss, mixing=mixing, lazy=lazy, clip_weights=clip_weights)
    found: dict[str, Any] = {}
    if discover:
        discovery = broadcast(net, seed)
        found = {"discovered": {"clusters": [list(c) for c in discovery.clusters], "tau": discovery.tau}}
    document = {"network": spec, **net.describe(), **found}
    for path, endings in ((save, (".json",)), (picture, (".png", ".svg", ".pdf"))):
        check_new(path, endings)  # both before either is written
    if save is not None and isinstance(net.delay, Trace):
        raise UserError(f"a trace stays in its own file; save without --delay {delay}, and give the delay to train")
    if save is not None:
        save.write_text(json_module.dumps(net.to_json()) + "\n", encoding="utf-8")
    if picture is not None:
        _draw(picture, net)
    if json:
        print_json(document)
    else:
        _print_network(document)


def _list_kinds(json: bool) -> None:
    from gossamer.network import DELAYS, GRAPH_SCHEDULES, NETWORKS

    if json:
        print_json({"networks": NETWORKS, "delays": DELAYS, "schedules": GRAPH_SCHEDULES})
        return
    for heading, kinds in (("network", NETWORKS), ("delay", DELAYS), ("schedule", GRAPH_SCHEDULES)):
        table = Table("name", "meaning and example", title=f"{heading} kinds", title_justify="left")
        for name, text in kinds.items():
            table.add_row(name, text)
        out.print(table)


def _print_network(document: dict[str, Any]) -> None:
    clusters = document["clusters"]
    sizes = "none given" if clusters is None else " + ".join(str(len(members)) for members in clusters)
    out.print(
        f"[bold]{document['network']}[/bold]: {document['agents']} agents, {document['links']} links, "
        f"clusters {sizes}, delay {document['delay']}, loss {document['loss']:g}",
        highlight=False,
        soft_wrap=True,
    )
    if "discovered" in document:
        found = document["discovered"]
        out.print(f"discovered: clusters {found['clusters']}, tau {found['tau']}", highlight=False, soft_wrap=True)
    table = Table("matrix", "a: stochastic", "b: one agreement", "c: positive", "e2", "gap", title="Assumption 2")
    for name, check in document["assumptions"].items():
        clauses = ["yes" if check[key] else "[red]no[/red]" for key in ("stochastic", "connected", "positive")]
        table.add_row(name, *clauses, f"{check['e2']:.4f}", f"{check['spectral_gap']:.4f}")
    out.print(table)
    for name, check in document["assumptions"].items():
        for words in check["words"]:
            out.print(f"{name}: {words}", highlight=False, soft_wrap=True)


def _draw(path: Path, net: "Network") -> None:
    from gossamer.report.plots import draw_network  # matplotlib is slow to import

    draw_network(net).savefig(path)


def check_new(path: Path | None, endings: tuple[str, ...]) -> None:
    """Refuse a file that exists, has another ending, or lies in a folder that cannot be written."""
    if path is None:
        return
    if path.suffix not in endings:
        raise UserError(f"cannot write '{path}'; give a name that ends in {' or '.join(endings)}")
    if path.exists():
        raise UserError(f"'{path}' already exists; choose another name")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"cannot write '{path}': its folder does not exist or is closed; choose another name")
