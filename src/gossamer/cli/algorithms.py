"""`gossamer algorithms`: what there is to choose from."""

from typing import Annotated

import typer
from rich.table import Table

from gossamer.algorithms import algorithm_class, describe_algorithms
from gossamer.cli.display import out, print_json


def algorithms(
    name: Annotated[str | None, typer.Argument(help="Show this one only.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list and nothing else.")] = False,
) -> None:
    """List every algorithm with its options.

    Example: gossamer algorithms pc-asgd
    """
    rules = describe_algorithms()
    if name is not None:
        canonical = algorithm_class(name).name
        rules = [rule for rule in rules if rule["name"] == canonical]
    if json:
        print_json(rules)
        return
    for rule in rules:
        also = f" (also {', '.join(rule['aliases'])})" if rule["aliases"] else ""
        out.print(f"[bold]{rule['name']}[/bold]{also}: {rule['summary']}", highlight=False)
        table = Table("option", "default", "what it sets", box=None, padding=(0, 2))
        for option, about in rule["options"].items():
            choices = f" [{' | '.join(about['choices'])}]" if about["choices"] else ""
            table.add_row(option, str(about["default"]), about["help"] + choices.replace("[", "\\["))
        out.print(table)
        out.print()
