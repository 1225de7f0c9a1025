"""`gossamer reproduce`: the paper's tables and figures, each by one command."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich import box
from rich.table import Table

from gossamer.cli.display import make_progress, print_json, print_table, step_callback
from gossamer.cli.interrupt import INTERRUPTED, Interrupt
from gossamer.engine.training import OnStep
from gossamer.errors import UserError, unknown_name
from gossamer.paper.campaign import Campaign, unique
from gossamer.paper.cells import chosen
from gossamer.paper.findings import Recipe
from gossamer.paper.make_run import Stopped
from gossamer.paper.paper_result import make_folder, verdicts_of, write_pages
from gossamer.paper.recipes import RECIPES, cells_for, find_recipes
from gossamer.paper.scales import PROTOCOLS, SCALES
from gossamer.paper.store import Store
from gossamer.paper.toy_page import make_toy
from gossamer.run.machine import check_device

PUBLISHED = Path("docs/results")  # of whoever stands in a clone of the repository
_SEEDS = ", ".join(f"{scale.seeds} at {scale.name}" for scale in SCALES.values())


@dataclass(frozen=True)
class Asked:
    """What a command asks for, checked."""

    recipes: list[Recipe]
    campaign: Campaign
    time_limit: float | None


def reproduce(
    name: Annotated[str | None, typer.Argument(help="A result, several with commas between them, or all.")] = None,
    *,
    scale: Annotated[str, typer.Option(help=f"How large: {', '.join(SCALES)}.")] = "smoke",
    protocol: Annotated[
        str, typer.Option(help="paper: one learning rate for all; tuned: each rule's own; or both.")
    ] = "both",
    seeds: Annotated[int | None, typer.Option(help=f"Seeds of every cell (default {_SEEDS}).")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Run only cells whose label has this text; given again, it narrows."),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Save and end after this time of running; the same command goes on."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="torch device (default cpu at smoke, else cuda if there is one).")
    ] = None,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder of the runs and pages.")] = Path("results"),
    take_in: Annotated[
        Path | None, typer.Option("--import", metavar="FILE", help="First take the runs of another folder's data file.")
    ] = None,
    pages: Annotated[
        bool | None,
        typer.Option("--pages/--no-pages", help="Run nothing and write the pages of what is there; or only run."),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show every result and what is already there.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Repeat tables and figures of the paper: make the runs that are missing, and write pages from all that are there.

    A finished run is kept in OUT/data and never made twice, whichever result asks for it. Ctrl+C and --time-limit save
    the present run, and the same command goes on. OUT/README.md sums up, OUT/NAME.md is the page of a result.

    Example: gossamer reproduce table-2 --scale quick --protocol paper --device cuda --time-limit 3600
    """
    if name is None and not show:
        raise UserError(f"there is no result to repeat; name one of {', '.join(RECIPES)}, or use all or --list")
    recipes = find_recipes(name or "all")
    store = Store(out_dir)
    if take_in is not None:
        store.take_in(take_in)
    if show:
        rows = list_results(recipes, store, out_dir)
        if json:
            print_json(rows)
            return
        print_table(list_table(rows))
        if (hint := where_else(store, out_dir)) is not None:
            print(hint)
        return
    asked = _check(recipes, store, out_dir, scale, protocol, seeds, only or [], time_limit, device)
    status, made = ("finished", 0) if pages else _run(asked, json=json)
    _tell(asked, status, made, [] if pages is False else write_pages(recipes, store, out_dir), json=json)


def _check(
    recipes: list[Recipe],
    store: Store,
    out_dir: Path,
    scale_name: str,
    protocol: str,
    seeds: int | None,
    only: list[str],
    time_limit: float | None,
    device: str | None,
) -> Asked:
    """Refuse what cannot be, before anything runs."""
    if scale_name not in SCALES:
        raise unknown_name("scale", scale_name, SCALES)
    if protocol not in (*PROTOCOLS, "both"):
        raise unknown_name("protocol", protocol, [*PROTOCOLS, "both"])
    scale = SCALES[scale_name]
    if seeds is not None and seeds < 1:
        raise UserError(f"seeds must be 1 or more, got {seeds}; leave it out for the {scale.seeds} of this scale")
    if time_limit is not None and not time_limit > 0:
        raise UserError(f"time limit must be more than 0 seconds, got {time_limit:g}; use for example 3600")
    protocols = list(PROTOCOLS) if protocol == "both" else [protocol]
    cells = cells_for(recipes, scale, protocols)
    left = chosen(cells, only)
    if only and not left:
        labels = "; ".join(dict.fromkeys(cell.label for cell in cells[:2])) or "none, as it has no runs"
        raise UserError(f"no label has {' and '.join(map(repr, only))} in it; labels are such as: {labels}")
    default = "cuda" if scale.name != "smoke" and torch.cuda.is_available() else "cpu"
    device = check_device(device or default)
    return Asked(recipes, Campaign(unique(left), seeds or scale.seeds, scale, store, out_dir, device), time_limit)


def _run(asked: Asked, *, json: bool) -> tuple[str, int]:
    """Make the runs under two bars, all of them and the present one; return how it ended and how many were made."""
    campaign = asked.campaign
    before, total = campaign.done(), campaign.total()
    make_folder(campaign.folder)
    if total and not json:
        print(f"{before} of {total} runs are there; {time_left(campaign, total - before)}", flush=True)
    with make_progress() as progress, Interrupt(asked.time_limit) as interrupt:
        whole = progress.add_task("all runs", total=total, completed=before, note="")
        bar = progress.add_task("", note="")

        def on_run(label: str, steps: int, done: int) -> OnStep:
            progress.update(whole, completed=done)
            progress.reset(bar, description=label, total=steps, note="")
            return step_callback(progress, bar)

        def on_case(done: int, cases: int) -> None:
            progress.update(bar, description="simple functions", completed=done, total=cases)

        status, made = campaign.run(on_run, interrupt)
        if status == "finished" and any(recipe.kind == "toy" for recipe in asked.recipes):
            try:
                make_toy(campaign.seeds, campaign.folder, interrupt, on_case)
            except Stopped as stopped:
                status = stopped.reason
    if status == "interrupted":
        print("gossamer: interrupted; what was run is kept, the same command goes on", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    return status, made


def _tell(asked: Asked, status: str, made: int, written: list[Path], *, json: bool) -> None:
    campaign = asked.campaign
    done, total = campaign.done(), campaign.total()
    verdicts = verdicts_of(asked.recipes, campaign.store, campaign.scale.name)
    if json:
        document: dict[str, Any] = {"results": [recipe.name for recipe in asked.recipes], "scale": campaign.scale.name}
        document |= {"seeds": campaign.seeds, "status": status, "runs": total, "done": done, "made_now": made}
        print_json({**document, "verdicts": verdicts, "pages": [str(path) for path in written]})
        return
    if total:
        print(f"{done} of {total} runs are there ({made} made now{'' if status == 'finished' else f', {status}'})")
    for verdict in verdicts:
        print(f"{verdict['name']}, {verdict['scale']}, {verdict['protocol']}: {verdict['because']}")
    summary = f"the summary is {campaign.folder / 'README.md'}"
    print(summary if written else "no pages were written; --pages writes them")


def list_results(recipes: list[Recipe], store: Store, folder: Path) -> list[dict[str, Any]]:
    """Return name, content and needs of each result, and how many of its runs are there at each scale."""
    rows = []
    for recipe in recipes:
        scales = {}
        for scale in SCALES.values():
            cells = unique(recipe.cells_of(scale, list(PROTOCOLS)))
            campaign = Campaign(cells, scale.seeds, scale, store, folder)
            scales[scale.name] = {"runs": campaign.total(), "done": campaign.done()}
        done = sum(each["done"] for each in scales.values())
        if recipe.kind in ("document", "toy"):  # a page without runs of its own
            done = int((folder / f"{recipe.name}.md").is_file())
        rows.append({"name": recipe.name, "what": recipe.what, "needs": recipe.needs, "scales": scales, "done": done})
    return rows


def list_table(rows: list[dict[str, Any]]) -> Table:
    """Return the list for people: of each scale, runs that are there and runs in all."""
    table = Table(title="results", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("name", "what", "needs", *SCALES):
        table.add_column(heading, overflow="fold", justify="right" if heading in SCALES else "left")
    for row in rows:
        counts = [f"{each['done']}/{each['runs']}" if each["runs"] else "-" for each in row["scales"].values()]
        table.add_row(row["name"], row["what"], row["needs"], *counts)
    return table


def where_else(store: Store, folder: Path) -> str | None:
    """Say where runs are, when there are none in the folder and the repository's own are at hand."""
    if store.scales or folder == PUBLISHED or not (PUBLISHED / "data").is_dir():
        return None
    return f"no runs are in '{folder}'; for those that are published add --out {PUBLISHED}"


def time_left(campaign: Campaign, missing: int) -> str:
    """Say how long the missing runs will take, from those that are there."""
    if not missing:
        return "nothing is missing"
    seconds, unknown = campaign.estimate()
    if not seconds:
        slow = campaign.device == "cpu" and campaign.scale.name != "smoke"
        return "time left: unknown" + ("; such runs are meant for a GPU, and take long without one" if slow else "")
    minutes = f"about {seconds / 60:.0f} minutes" if seconds >= 90 else f"about {seconds:.0f} s"
    return f"time left: {minutes}" + (f", and {unknown} runs of which it is unknown" if unknown else "")
