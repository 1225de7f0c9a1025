"""Command-line flags: one for every setting of a run and every option of an algorithm."""

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gossamer.cli.descriptions import read_descriptions

# Flags that several commands have.
Algorithms = Annotated[
    str, typer.Option("--algorithms", "-a", help="Comma-separated names, with options as in pc-asgd/theta=pv; or all.")
]
Config = Annotated[Path | None, typer.Argument(help="TOML file of settings; flags override it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Preset = Annotated[
    str | None, typer.Option(help="Settings that follow one reading of the paper: default, paper or public-code.")
]
ReportFolder = Annotated[
    Path | None, typer.Option("--out", help="Folder for the report (default: a new one under reports/).")
]

NETWORK_FLAGS = (
    *("network", "clusters", "delay", "delay_unit", "loss", "mixing", "lazy"),
    *("clip_weights", "reliable_delay", "startup", "graph_schedule"),
)


def takes_settings(
    *without: str, also: str | None = None, panel: str = "", defaults: Mapping[str, Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace a command's parameter `given` by these flags, except those named in `without`.

    `also` names further descriptions, as "processes". `--help` shows them in the panel `panel`. `defaults` are those of
    the command where it has others; the command applies them itself.
    """
    more = {} if also is None else read_descriptions()[also]
    further = [make_flag(name, about, panel) for name, about in more.items()]
    flags = [flag for flag in [*_flags(defaults or {}), *further] if flag.name not in without]
    return functools.partial(with_flags, flags=flags)


def with_flags(command: Callable[..., None], flags: list[inspect.Parameter]) -> Callable[..., None]:
    """Replace a command's parameter `given` by these flags. The command gets a dict of the flags that were set.

    Typer reads a command's signature, so the wrapper gets one that lists all flags. A parameter of the command
    replaces the flag of the same name.
    """
    signature = inspect.signature(command)
    own = [parameter for name, parameter in signature.parameters.items() if name != "given"]
    own_names = [parameter.name for parameter in own]
    parameters = [*own, *(flag for flag in flags if flag.name not in own_names)]

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        kept = {name: values.pop(name) for name in own_names}
        command(**kept, given={name: value for name, value in values.items() if value is not None})

    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del wrapper.__wrapped__  # otherwise inspect shows the command's own signature
    return wrapper


def _flags(defaults: Mapping[str, Any]) -> list[inspect.Parameter]:
    """Return a flag for every setting and every option. Algorithms with the same option share one flag."""
    settings, rules = read_descriptions()["settings"], read_descriptions()["algorithms"]
    settings = settings | {name: {**settings[name], "default": default} for name, default in defaults.items()}
    panels = {name: "Network" if name in NETWORK_FLAGS else "Training" for name in settings}
    flags = [make_flag(name, settings[name], panel) for name, panel in panels.items()]
    for name in dict.fromkeys(name for rule in rules for name in rule["options"]):
        owners = {rule["name"]: rule["options"][name] for rule in rules if name in rule["options"]}
        flags.append(make_flag(name, _shared(owners, len(rules)), "Options of the algorithm"))
    return flags


def _shared(owners: dict[str, dict[str, Any]], rules: int) -> dict[str, Any]:
    """Describe an option of these algorithms: each meaning with its algorithms, and each default."""
    meanings: dict[str, list[str]] = {}
    for owner, about in owners.items():
        meanings.setdefault(about["help"], []).append(owner)
    shown = dict(next(iter(owners.values())))
    if len(owners) < rules:
        shown["help"] = "; ".join(f"{text} ({', '.join(names)})" for text, names in meanings.items())
    if len({str(about["default"]) for about in owners.values()}) > 1:
        defaults = ", ".join(f"{owner} {about['default']}" for owner, about in owners.items())
        shown |= {"default": "", "help": f"{shown['help']} (default {defaults})"}
    return shown


def make_flag(name: str, description: dict[str, Any], panel: str) -> inspect.Parameter:
    """Make a flag. Its value is None unless the user sets it, so that presets and files apply."""
    text, default, choices = description["help"], description["default"], description["choices"]
    text = text[0].upper() + text[1:]
    if choices:
        text += f". One of {', '.join(choices)}"
    if default is not None and default != "":
        # Not in square brackets: rich reads those as markup.
        text += f" (default {str(default).lower() if isinstance(default, bool) else default})"
    text += "."
    dashed = name.replace("_", "-")
    if isinstance(default, bool):
        option = typer.Option(f"--{dashed}/--no-{dashed}", help=text, rich_help_panel=panel, show_default=False)
        annotation: Any = Annotated[bool | None, option]
    else:
        option = typer.Option(f"--{dashed}", help=text, metavar="VALUE", rich_help_panel=panel, show_default=False)
        annotation = Annotated[str | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
