"""`gossamer tune`: find a learning rate for each algorithm on held-out training data."""

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from gossamer.cli.compare import FAMILY
from gossamer.cli.display import make_progress, print_json, print_table, step_callback
from gossamer.cli.flags import Algorithms, Config, Json, takes_settings
from gossamer.cli.interrupt import INTERRUPTED
from gossamer.errors import StabilityWarning, UserError, read_number
from gossamer.train.rate_search import KINDS, RATES, Search

if TYPE_CHECKING:
    from gossamer.engine.training import OnStep
    from gossamer.train.compare import Entry
    from gossamer.train.tune import Notebook

DEFAULTS = {"validation": 0.2}  # rates are judged on data held out
SHORTEST = 4  # delays: a shorter run does not show the effect of the delay


@takes_settings("algorithm", "lr", "log", defaults=DEFAULTS)
def tune(
    config: Config = None,
    *,
    algorithms: Algorithms = FAMILY,
    rates: Annotated[str, typer.Option(help="First learning rates to try, ascending.")] = ",".join(map(str, RATES)),
    search: Annotated[
        str,
        typer.Option(
            help=f"{' or '.join(KINDS)}: try all rates, or drop two thirds after 1/9 and again after 1/3 of the epochs."
        ),
    ] = "grid",
    seeds: Annotated[int, typer.Option(help="Seeds to average over; the first one is --seed.")] = 1,
    out: Annotated[Path, typer.Option(help="File for all trials; an existing file is continued.")] = Path("tuned.json"),
    json: Json = False,
    given: dict[str, Any],
) -> None:
    """Find a learning rate for each algorithm on held-out training data.

    Holds out a fifth of the training data (--validation) and never uses the test data. If the best rate is the first
    or the last one, tries rates beyond it. `gossamer compare --tuned FILE` uses the rates found.

    Example: gossamer tune --algorithms d-asgd,pc-asgd,dm-asgd --epochs 100 --out tuned.json
    """
    from gossamer.cli.comparison_runs import entries_of  # imports torch, which --help does not need
    from gossamer.run.merge_settings import with_file
    from gossamer.train.tune import Notebook, key_of

    if seeds < 1:
        raise UserError(f"seeds must be 1 or more, got {seeds}")
    values = {**DEFAULTS, **with_file(config, given)}
    for name in ("algorithm", "lr"):
        values.pop(name, None)
    entries = entries_of(algorithms, values, None)
    if not entries[0].settings.validation:
        raise UserError(
            "validation must be above 0 here, got 0: rates are judged on data held out; use for example 0.2"
        )
    notebook = Notebook(out, entries[0].settings)
    plan = Search(search, tuple(read_number("a rate", text) for text in rates.split(",")), _shortest(entries[0]))
    first = entries[0].settings.seed
    try:
        _run_with_bars(entries, plan, notebook, list(range(first, first + seeds)))
    except KeyboardInterrupt:
        print(f"gossamer: interrupted; the trials are in {out}, the same command continues", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    found = {key_of(entry): notebook.best[key_of(entry)] for entry in entries}
    if json:
        print_json({"file": str(out), "best": found, "settings": notebook.settings})
        return
    print_table(_table(found))
    print(f"{len(notebook.trials)} trials are in {out}; gossamer compare --tuned {out} uses the rates")


def _shortest(entry: "Entry") -> int:
    """Return the fewest epochs after which a run shows the effect of the delay."""
    from gossamer.engine.make_training import make_training

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StabilityWarning)
        training = make_training(entry.settings)
    return -(-SHORTEST * training.network.delay.typical // training.steps_per_epoch) or 1


def _run_with_bars(entries: "list[Entry]", search: Search, notebook: "Notebook", seeds: list[int]) -> None:
    from gossamer.train.tune import tune as tune_one

    with make_progress() as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", StabilityWarning)  # a rate that diverges is a result here
        whole = progress.add_task("algorithms", total=len(entries), note="")
        bar = progress.add_task("", note="")

        def on_trial(label: str, lr: float, steps: int, seed: int) -> "OnStep":
            progress.reset(bar, description=f"{label} lr {lr:g} seed {seed}", total=steps, note="")
            return step_callback(progress, bar)

        for entry in entries:
            tune_one(entry, search, notebook, seeds, on_trial)
            progress.advance(whole)


def _table(found: dict[str, dict[str, Any]]) -> Table:
    table = Table(title="best learning rates", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("algorithm", overflow="fold")
    for heading in ("lr", "held-out accuracy %", "trials"):
        table.add_column(heading, justify="right")
    for label, best in found.items():
        edge = " (at the edge)" if best["at_edge"] else ""
        accuracy = "diverged" if best["accuracy"] is None else f"{100 * best['accuracy']:.1f}"
        table.add_row(label.replace("/", " "), f"{best['lr']:g}{edge}", accuracy, str(best["trials"]))
    return table
