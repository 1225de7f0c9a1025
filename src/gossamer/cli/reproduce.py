"""`gossamer reproduce`: the paper's tables and figures, each by one command."""

from pathlib import Path
from typing import Annotated

import typer

from gossamer.cli.descriptions import read_descriptions

_SCALES = read_descriptions()["scales"]
_SEEDS = ", ".join(f"{seeds} at {scale}" for scale, seeds in _SCALES.items())


def reproduce(
    name: Annotated[str | None, typer.Argument(help="A result, several separated by commas, or all.")] = None,
    *,
    scale: Annotated[str, typer.Option(help=f"Size of the runs: {', '.join(_SCALES)}.")] = "smoke",
    protocol: Annotated[
        str, typer.Option(help="paper: one learning rate for all rules; tuned: one for each rule; or both.")
    ] = "both",
    seeds: Annotated[
        int | None,
        typer.Option(help=f"Seeds of every cell (default {_SEEDS})."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Run only cells whose label has this text; given twice, both must match."),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Save and stop after this time; the same command continues."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Torch device (default: cpu at smoke, else cuda if available).")
    ] = None,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for runs and pages.")] = Path("results"),
    take_in: Annotated[
        Path | None,
        typer.Option("--import", metavar="FILE", help="First import the runs of another folder's data file."),
    ] = None,
    pages: Annotated[
        bool | None,
        typer.Option("--pages/--no-pages", help="Only write the pages of the stored runs; --no-pages: only run."),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List every result and its finished runs.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Reproduce the paper's tables and figures: make the missing runs, and write pages from all stored runs.

    OUT/data keeps every finished run. No run is made twice, even if several results need it. Ctrl+C and --time-limit
    save the current run; the same command continues it. OUT/README.md is the summary, OUT/NAME.md the page of a result.

    Example: gossamer reproduce table-2 --scale quick --protocol paper --device cuda --time-limit 3600
    """
    from gossamer.cli.reproduce_run import (  # imports torch, which --help does not need
        find_runs,
        make_campaign,
        run_campaign,
        show_results,
    )

    results, store = find_runs(name, out_dir, take_in, show=show)
    if show:
        show_results(results, store, out_dir, json=json)
        return
    campaign = make_campaign(
        results, store, scale=scale, protocol=protocol, seeds=seeds, only=only or [], device=device
    )
    run_campaign(results, campaign, time_limit, pages=pages, json=json)
