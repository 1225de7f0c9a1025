"""`gossamer testbed`: what machines and links mean for messages of a size, before training on them."""

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from gossamer.cli.display import out, print_json, print_table
from gossamer.cli.network import check_new
from gossamer.errors import UserError

MOST_ROWS = 20
MOST_AGENTS = 256  # of a complete network, which a testbed has unless told otherwise


def testbed(
    spec: Annotated[
        str | None,
        typer.Argument(help="A testbed such as lan:8, aws:oregon*3,tokyo*2 or bed.toml; without one, list all kinds."),
    ] = None,
    message: Annotated[str, typer.Option(help="Size of a message, such as 13.6MB; a plain number is bytes.")] = "1MB",
    step_seconds: Annotated[
        str | None, typer.Option("--step-seconds", help="Time of an iteration; compute is a multiple of it.")
    ] = None,
    network: Annotated[
        str | None, typer.Option("--network", help="Network of as many agents (default complete).")
    ] = None,
    picture: Annotated[Path | None, typer.Option("--out", help="Draw it into this .png, .svg or .pdf file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Show a testbed: for messages of a size, how long transfers take and how old messages are when they are used.

    Example: gossamer testbed aws:oregon*3,virginia*3,tokyo*2 --message 13.6MB --step-seconds 0.2
    """
    if spec is None:
        _list_kinds(json)
        return
    from gossamer.network import network as make_network  # imports torch, which --help does not need
    from gossamer.testbed import testbed as make_testbed
    from gossamer.testbed.description import describe_testbed
    from gossamer.testbed.units import read_bytes, read_seconds

    size = read_bytes("message", message)
    if not 0 <= size <= 1e15:
        raise UserError(f"message must lie in [0, 1e15] bytes, got {size:g}; write it like 13.6MB")
    bed = make_testbed(spec)
    if step_seconds is not None:
        bed = dataclasses.replace(bed, step_seconds=read_seconds("step_seconds", step_seconds))
    if network is None and bed.agents > MOST_AGENTS:
        raise UserError(
            f"a complete network of {bed.agents} agents is too large; give --network regular:{bed.agents},k=4"
        )
    graph = make_network(network or f"complete:{bed.agents}")
    bed.check_network(graph.num_agents)
    check_new(picture, (".png", ".svg", ".pdf"))
    document = {"network": graph.spec, **describe_testbed(bed, graph.pattern, size)}
    if picture is not None:
        from gossamer.report.testbed_picture import draw_testbed  # matplotlib is slow to import

        draw_testbed(document).savefig(picture)
    if json:
        print_json(document)
    else:
        _print(document)


def _list_kinds(json: bool) -> None:
    from gossamer.testbed import COMPUTES, SCHEDULES, TESTBEDS

    kinds = {"testbeds": TESTBEDS, "compute": COMPUTES, "schedules": SCHEDULES}
    if json:
        print_json(kinds)
        return
    for heading, texts in kinds.items():
        table = Table("name", "meaning and example", title=heading, title_justify="left")
        for name, text in texts.items():
            table.add_row(name, text)
        out.print(table)


def _print(document: dict[str, Any]) -> None:
    from gossamer.testbed.description import rows_by_place
    from gossamer.testbed.units import show_rate, show_seconds

    times = document["iteration_seconds"]
    _say(
        f"[bold]{document['testbed']}[/bold]: {document['agents']} agents, network {document['network']}, "
        f"messages of {document['message_bytes'] / 1e6:g} MB, "
        f"iterations of {_range((min(times), max(times)), show_seconds)}"
    )
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("link", overflow="fold")
    for heading in ("links", "latency", "bandwidth", "transfer", "age"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = rows_by_place(document)
    for row in rows[:MOST_ROWS]:
        table.add_row(
            f"{row['from']} {'↔' if row['both'] else '→'} {row['to']}",
            str(row["links"]),
            _range(row["latency_seconds"], show_seconds),
            _range(row["bandwidth"], show_rate),
            _range(row["transfer_seconds"], show_seconds),
            _range(row["age"], str),
        )
    print_table(table)
    if len(rows) > MOST_ROWS:
        _say(f"and {len(rows) - MOST_ROWS} faster ones; --json has all")
    _print_clusters(document)
    _say(
        f"one synchronous round: {show_seconds(document['round_seconds'])}; "
        f"the slowest agent computes for {show_seconds(max(times))}"
    )


def _print_clusters(document: dict[str, Any]) -> None:
    now, then = document["tolerance"], document["needed_tolerance"]
    _say(f"reliable clusters (age at most {now}): {_groups(document['clusters'])}")
    if then > now:
        _say(f"with tolerance={then}: {_groups(document['clusters_then'])}")


def _groups(clusters: list[list[int]]) -> str:
    real = [members for members in clusters if len(members) > 1]
    named = [f"{{{_runs(members)}}}" for members in real[:MOST_ROWS]]
    more = [f"and {len(real) - MOST_ROWS} more"] if len(real) > MOST_ROWS else []
    return " ".join([*named, *more]) or "none"


def _runs(members: list[int]) -> str:
    """Return ascending numbers, neighbouring ones as 3-5."""
    gaps = [place for place in range(1, len(members)) if members[place] > members[place - 1] + 1]
    parts = [members[begin:end] for begin, end in pairwise([0, *gaps, len(members)])]
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def _range(ends: tuple[Any, Any], show: Any) -> str:
    low, high = show(ends[0]), show(ends[1])
    return low if low == high else f"{low} to {high}"


def _say(text: str) -> None:
    out.print(text, highlight=False, soft_wrap=True)
