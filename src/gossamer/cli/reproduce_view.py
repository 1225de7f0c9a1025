"""What `gossamer reproduce` shows before it runs anything: the list of results, and how long the rest will take."""

from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from gossamer.paper.campaign import Campaign, unique
from gossamer.paper.recipe import Recipe
from gossamer.paper.scales import PROTOCOLS, SCALES
from gossamer.paper.store import Store

PUBLISHED = Path("docs/results")  # of whoever stands in a clone of the repository


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
