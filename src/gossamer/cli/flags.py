"""One flag for every setting of a run and every option of an algorithm, made from their declarations."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from gossamer.algorithms import describe_algorithms
from gossamer.algorithms.options import describe_options
from gossamer.run.settings import SETTING_NAMES, Settings

NETWORK_FLAGS = (
    *("network", "clusters", "delay", "delay_unit", "loss", "mixing", "lazy"),
    *("clip_weights", "reliable_delay", "startup"),
)


def takes_settings(
    *without: str, also: type[Any] | None = None, panel: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command all those flags, less the ones named, in place of its parameter `given`.

    `also` declares further ones, which stand in a panel of their own. The command receives `given` as a dict of the
    flags that were used. Typer reads a command's signature, so the wrapper is given one that lists them all.
    """
    further = [] if also is None else [make_flag(name, about, panel) for name, about in describe_options(also).items()]
    return functools.partial(_with_flags, without=without, further=further)


def _with_flags(
    command: Callable[..., None], without: tuple[str, ...], further: list[inspect.Parameter]
) -> Callable[..., None]:

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        own = {name: values.pop(name) for name in own_names}
        command(**own, given={name: value for name, value in values.items() if value is not None})

    signature = inspect.signature(command)
    own_parameters = [parameter for name, parameter in signature.parameters.items() if name != "given"]
    own_names = [parameter.name for parameter in own_parameters]
    flags = [flag for flag in [*_flags(), *further] if flag.name not in (*own_names, *without)]
    wrapper.__signature__ = signature.replace(parameters=[*own_parameters, *flags])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own_parameters, *flags]}
    del wrapper.__wrapped__  # or inspect would look through to the command's own signature
    return wrapper


def _flags() -> list[inspect.Parameter]:
    settings = describe_options(Settings)
    flags = [make_flag(name, settings[name], _panel(name)) for name in SETTING_NAMES]
    options: dict[str, dict[str, Any]] = {}
    owners: dict[str, list[str]] = {}
    for rule in describe_algorithms():
        for name, description in rule["options"].items():
            options.setdefault(name, description)
            owners.setdefault(name, []).append(rule["name"])
    for name, description in options.items():
        everywhere = len(owners[name]) == len(describe_algorithms())
        of = {rule["name"]: rule["options"][name] for rule in describe_algorithms() if name in rule["options"]}
        shown = {**description, "help": description["help"] + ("" if everywhere else f" ({', '.join(owners[name])})")}
        if len({str(each["default"]) for each in of.values()}) > 1:  # one flag, and a default for each
            each = ", ".join(f"{owner} {about['default']}" for owner, about in of.items())
            shown |= {"default": "", "help": f"{shown['help']} (default {each})"}
        flags.append(make_flag(name, shown, "Options of the algorithm"))
    return flags


def make_flag(name: str, description: dict[str, Any], panel: str) -> inspect.Parameter:
    """Make a flag that is None when not used, so that presets and files show through."""
    text, default, choices = description["help"], description["default"], description["choices"]
    if choices:
        text += f": {', '.join(choices)}"
    if default is not None and default != "":
        # Not in square brackets, which rich takes for markup.
        text += f" (default {str(default).lower() if isinstance(default, bool) else default})"
    dashed = name.replace("_", "-")
    if isinstance(default, bool):
        option = typer.Option(f"--{dashed}/--no-{dashed}", help=text, rich_help_panel=panel, show_default=False)
        annotation: Any = Annotated[bool | None, option]
    else:
        option = typer.Option(f"--{dashed}", help=text, metavar="VALUE", rich_help_panel=panel, show_default=False)
        annotation = Annotated[str | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _panel(name: str) -> str:
    return "Network" if name in NETWORK_FLAGS else "Training"
