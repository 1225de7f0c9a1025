"""The work of `gossamer reproduce`: the missing runs, the list of results, and what came out."""

import sys
from pathlib import Path
from typing import Any

import torch
import typer
from rich import box
from rich.table import Table

from gossamer.cli.display import make_progress, print_json, print_table, step_callback
from gossamer.cli.interrupt import INTERRUPTED, Interrupt
from gossamer.engine.training import OnStep
from gossamer.errors import UserError, unknown_name
from gossamer.paper import RESULTS, cells_for, find_results
from gossamer.paper.campaign import Campaign, unique
from gossamer.paper.cells import PROTOCOLS, SCALES, chosen
from gossamer.paper.make_run import Stopped
from gossamer.paper.paper_result import MeasuredResult, PaperResult, Sections, find_sections
from gossamer.paper.store import Store
from gossamer.paper.summary_page import write_pages
from gossamer.run.folder import make_folder
from gossamer.run.machine import check_device

PUBLISHED = Path("docs/results")  # in a clone of the repository


def find_runs(name: str | None, out_dir: Path, take_in: Path | None, *, show: bool) -> tuple[list[PaperResult], Store]:
    """Return the results of this name, and the store of the folder, with the runs of a data file if one is given."""
    if name is None and not show:
        raise UserError(f"no result was given; name one of {', '.join(RESULTS)}, or use all or --list")
    results, store = find_results(name or "all"), Store(out_dir)
    if take_in is not None:
        store.take_in(take_in)
    return results, store


def show_results(results: list[PaperResult], store: Store, out_dir: Path, *, json: bool) -> None:
    """List the results and their finished runs."""
    rows = list_results(results, store, out_dir)
    if json:
        print_json(rows)
        return
    print_table(list_table(rows))
    if (hint := where_else(store, out_dir)) is not None:
        print(hint)


def run_campaign(
    results: list[PaperResult], campaign: Campaign, time_limit: float | None, *, pages: bool | None, json: bool
) -> None:
    """Make the missing runs, write the pages and print what came out."""
    interrupt, store, out_dir = Interrupt(time_limit), campaign.store, campaign.folder
    status, made = ("finished", 0) if pages else _run(results, campaign, interrupt, json=json)
    sections = find_sections(results if pages is False else RESULTS.values(), store)
    written = [] if pages is False else write_pages(results, sections, out_dir)
    _tell(results, campaign, status, made, sections, written, json=json)


def make_campaign(
    results: list[PaperResult],
    store: Store,
    *,
    scale: str,
    protocol: str,
    seeds: int | None,
    only: list[str],
    device: str | None,
) -> Campaign:
    """Check the arguments before anything runs."""
    if scale not in SCALES:
        raise unknown_name("scale", scale, SCALES)
    if protocol not in (*PROTOCOLS, "both"):
        raise unknown_name("protocol", protocol, [*PROTOCOLS, "both"])
    size = SCALES[scale]
    if seeds is not None and seeds < 1:
        raise UserError(f"seeds must be 1 or more, got {seeds}; leave it out for the {size.seeds} of this scale")
    protocols = list(PROTOCOLS) if protocol == "both" else [protocol]
    cells = cells_for(results, size, protocols)
    left = chosen(cells, only)
    if only and not left:
        labels = "; ".join(dict.fromkeys(cell.label for cell in cells[:2])) or "none, as it has no runs"
        raise UserError(f"no label has {' and '.join(map(repr, only))} in it; use a part of a label, such as: {labels}")
    default = "cuda" if size.name != "smoke" and torch.cuda.is_available() else "cpu"
    device = check_device(device or default)
    return Campaign(unique(left), seeds or size.seeds, size, store, store.folder.parent, device)


def _run(results: list[PaperResult], campaign: Campaign, interrupt: Interrupt, *, json: bool) -> tuple[str, int]:
    """Make the runs with two progress bars, all runs and the current one; return how it ended and the number made."""
    before, total = campaign.done(), campaign.total()
    make_folder(campaign.folder)
    if total and not json:
        print(f"{before} of {total} runs are finished; {time_left(campaign, total - before)}", flush=True)
    with make_progress() as progress, interrupt:
        whole = progress.add_task("all runs", total=total, completed=before, note="")
        bar = progress.add_task("", note="")

        def on_run(label: str, steps: int, done: int) -> OnStep:
            progress.update(whole, completed=done)
            progress.reset(bar, description=label, total=steps, note="")
            return step_callback(progress, bar)

        def on_case(done: int, cases: int) -> None:
            progress.update(bar, description="runs of their own", completed=done, total=cases)

        status, made = campaign.run(on_run, interrupt)
        if status == "finished":
            try:
                for result in results:
                    result.run_apart(campaign.seeds, campaign.folder, interrupt, on_case, campaign.scale)
            except Stopped as stopped:
                status = stopped.reason
    if status == "interrupted":
        print("gossamer: interrupted; finished runs are stored, the same command continues", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    return status, made


def _tell(
    results: list[PaperResult],
    campaign: Campaign,
    status: str,
    made: int,
    sections: Sections,
    written: list[Path],
    *,
    json: bool,
) -> None:
    done, total = campaign.done(), campaign.total()
    verdicts = verdicts_of(results, sections, campaign.scale.name)
    if json:
        document: dict[str, Any] = {"results": [result.name for result in results], "scale": campaign.scale.name}
        document |= {"seeds": campaign.seeds, "status": status, "runs": total, "done": done, "made_now": made}
        print_json({**document, "verdicts": verdicts, "pages": [str(path) for path in written]})
        return
    if total:
        print(f"{done} of {total} runs are finished ({made} made now{'' if status == 'finished' else f', {status}'})")
    for verdict in verdicts:
        print(f"{verdict['name']}, {verdict['scale']}, {verdict['protocol']}: {verdict['because']}")
    summary = f"the summary is {campaign.folder / 'README.md'}"
    print(summary if written else "no pages were written; --pages writes them")


def verdicts_of(results: list[PaperResult], sections: Sections, scale: str) -> list[dict[str, str]]:
    """Return the verdicts at this scale on each result that has one."""
    found = []
    for result in results:
        for section in sections.get(result.name, []):
            verdict = result.verdict(section) if isinstance(result, MeasuredResult) else None
            if verdict is not None and section.scale.name == scale:
                where = {"scale": scale, "protocol": section.protocol}
                found.append({"name": result.name, **where, "verdict": verdict.word, "because": verdict.sentence})
    return found


def list_results(results: list[PaperResult], store: Store, folder: Path) -> list[dict[str, Any]]:
    """Return name, content and needs of each result, and its finished runs at each scale."""
    rows = []
    for result in results:
        scales = {}
        for scale in SCALES.values():
            cells = unique(result.cells_of(scale, list(PROTOCOLS)))
            campaign = Campaign(cells, scale.seeds, scale, store, folder)
            scales[scale.name] = {"runs": campaign.total(), "done": campaign.done()}
        done = sum(each["done"] for each in scales.values())
        if not isinstance(result, MeasuredResult):  # a page without stored runs
            done = int((folder / f"{result.page_name}.md").is_file())
        rows.append({"name": result.name, "what": result.what, "needs": result.needs, "scales": scales, "done": done})
    return rows


def list_table(rows: list[dict[str, Any]]) -> Table:
    """Return the list as a table: finished and all runs at each scale."""
    table = Table(title="results", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("name", "what", "needs", *SCALES):
        table.add_column(heading, overflow="fold", justify="right" if heading in SCALES else "left")
    for row in rows:
        counts = [f"{each['done']}/{each['runs']}" if each["runs"] else "-" for each in row["scales"].values()]
        table.add_row(row["name"], row["what"], row["needs"], *counts)
    return table


def where_else(store: Store, folder: Path) -> str | None:
    """Point to the published runs if the folder has none and this is a clone of the repository."""
    if store.scales or folder == PUBLISHED or not (PUBLISHED / "data").is_dir():
        return None
    return f"'{folder}' has no runs; for the published ones add --out {PUBLISHED}"


def time_left(campaign: Campaign, missing: int) -> str:
    """Estimate the time of the missing runs from the finished ones."""
    if not missing:
        return "nothing is missing"
    seconds, unknown = campaign.estimate()
    if not seconds:
        slow = campaign.device == "cpu" and campaign.scale.name != "smoke"
        return "time left: unknown" + ("; these runs are meant for a GPU and take long without one" if slow else "")
    minutes = f"about {seconds / 60:.0f} minutes" if seconds >= 90 else f"about {seconds:.0f} s"
    return f"time left: {minutes}" + (f", plus {unknown} runs without a time estimate" if unknown else "")
