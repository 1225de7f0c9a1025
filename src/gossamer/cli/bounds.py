"""`gossamer bounds`: the paper's bounds for your network, beside what your run measured."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from gossamer.cli.display import make_progress, out, print_json, print_table
from gossamer.cli.flags import Json, takes_settings
from gossamer.errors import UserError, read_number, unknown_name

_TITLES = {
    "consensus": "Lemma 1: distance from the mean",
    "pl": "Theorem 1: F - F* at the end",
    "nonconvex": "Theorem 2: mean of ||grad F||²",
}


@takes_settings("log", "testbed", "step_seconds", "seconds", "eval_seconds", "target")
def bounds(
    run: Annotated[
        Path | None, typer.Argument(help="Folder of a run, or TOML file of settings; flags override it.")
    ] = None,
    *,
    probes: Annotated[int, typer.Option(help="Number of steps at which constants are estimated.")] = 10,
    draws: Annotated[int, typer.Option(help="Noisy gradients per probe.")] = 8,
    examples: Annotated[int, typer.Option(help="Examples per agent for the estimate of the full gradient.")] = 512,
    constant: Annotated[
        list[str] | None, typer.Option("--constant", help="Set a constant, such as gamma=12; may be repeated.")
    ] = None,
    json: Json = False,
    given: dict[str, Any],
) -> None:
    """Estimate the constants of the paper's bounds from a run, and print the bounds beside what the run measured.

    Trains again from the run's settings, so use small models. Prints three forms of each bound: the main text's, the
    appendix's and the one that the algebra gives. None of them is proved; docs/theory.md says why.

    Example: gossamer bounds --network paper-1 --delay 5 --lr 0.02 --epochs 20 --theta 0.3
    """
    from gossamer.engine.make_training import make_training  # imports torch, which --help does not need
    from gossamer.run.merge_settings import merge_settings, with_file
    from gossamer.theory.constants_report import report

    for name, number in (("probes", probes), ("draws", draws), ("examples", examples)):
        if number < 1:
            raise UserError(f"{name} must be 1 or more, got {number}")
    by_hand = _constants(constant or [])
    training = make_training(merge_settings(with_file(_settings_file(run), given)))
    with make_progress() as progress:
        bar = progress.add_task(training.algorithm.name, total=training.steps, note="then estimates")
        document = report(
            training,
            probes=probes,
            draws=draws,
            examples=examples,
            given=by_hand,
            on_step=lambda step: progress.update(bar, completed=step),
        )
    if json:
        print_json(document)
    else:
        _print(document)


def _settings_file(run: Path | None) -> Path | None:
    """Return the file of settings: the given one, or that of the given run folder."""
    if run is None or not run.is_dir():
        return run
    from gossamer.run.folder import RunFolder

    RunFolder.open(run)  # raises if the folder is not a run
    return run / "config.toml"


def _constants(texts: list[str]) -> dict[str, float]:
    from gossamer.theory.bounds import Constants

    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if name not in Constants.__dataclass_fields__:
            raise unknown_name("constant", name, Constants.__dataclass_fields__)
        if not equals:
            raise UserError(f"constant '{text}' has no value; write it as {name}=1.5")
        found[name] = read_number(f"constant {name}", value)
    Constants(**found)
    return found


def _print(document: dict[str, Any]) -> None:
    title = (
        f"{document['algorithm']} on {document['network']}, delay {document['tau']}, lr {document['lr']:g}, "
        f"{document['steps']} iterations"
    )
    table = Table("constant", "value", "how", title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name, about in document["constants"].items():
        table.add_row(name, "-" if about["value"] is None else f"{about['value']:.4g}", about["how"])
    print_table(table)
    table = Table("bound", "measured", "main-text", "appendix", "derived", box=box.SIMPLE_HEAD)
    reasons: dict[str, None] = {}
    for name, forms in document["bounds"].items():
        cells = ["no guarantee" if about["value"] is None else f"{about['value']:.4g}" for about in forms.values()]
        table.add_row(_TITLES[name], f"{document['measured'][name]:.4g}", *cells)
        reasons |= dict.fromkeys(f"{name}: {about['reason']}" for about in forms.values() if about["reason"])
    print_table(table)
    for words in reasons:
        out.print(f"no guarantee, {words}", highlight=False, soft_wrap=True)
    out.print("These are the paper's statements, not guarantees. Gaps in their proofs:", highlight=False)
    for words in document["caveats"]:
        out.print(f"  - {words}", highlight=False, soft_wrap=True)
