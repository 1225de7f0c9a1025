"""`gossamer algorithms`: the list of algorithms, and the options of one."""

from typing import Annotated, Any

import typer
from rich.table import Table

from gossamer.cli.descriptions import read_descriptions
from gossamer.cli.display import out, print_json
from gossamer.errors import unknown_name


def algorithms(
    name: Annotated[str | None, typer.Argument(help="Show this algorithm with its options.")] = None,
    plugin: Annotated[
        str | None, typer.Option(metavar="VALUE", help="Files or modules with your own rules; their code is executed.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list and nothing else.")] = False,
) -> None:
    """List every algorithm, or show one with its options.

    Origin: published = as its source prints it, adapted = changed for late links, ours = first described here.

    Example: gossamer algorithms pc-asgd
    """
    rules = read_descriptions()["algorithms"] if plugin is None else _with_plugins(plugin)
    if name is not None:
        found = [rule for rule in rules if name in (rule["name"], *rule["aliases"])]
        if not found:
            raise unknown_name("algorithm", name, [rule["name"] for rule in rules])
        rules = found
    if json:
        print_json(rules)
        return
    if name is not None:
        _show(rules[0])
        return
    table = Table("name", "origin", "what it does", box=None, padding=(0, 2, 0, 0))
    for rule in rules:
        table.add_row(rule["name"], rule["origin"], rule["summary"])
    out.print(table)
    out.print("\ngossamer algorithms NAME shows one with its options", highlight=False)


def _with_plugins(plugin: str) -> list[dict[str, Any]]:
    from gossamer.algorithms import describe_algorithms
    from gossamer.algorithms.plugins import load_plugins

    load_plugins(plugin)
    return describe_algorithms()


def _show(rule: dict[str, Any]) -> None:
    """Print one algorithm with its options."""
    also = f" (also {', '.join(rule['aliases'])})" if rule["aliases"] else ""
    out.print(f"[bold]{rule['name']}[/bold]{also}: {rule['summary']} \\[{rule['origin']}]", highlight=False)
    table = Table("option", "default", "what it sets", box=None, padding=(0, 2))
    for option, about in rule["options"].items():
        choices = f" [{' | '.join(about['choices'])}]" if about["choices"] else ""
        table.add_row(option, str(about["default"]), about["help"] + choices.replace("[", "\\["))
    out.print(table)
