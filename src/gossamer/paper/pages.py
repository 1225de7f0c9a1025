"""The pages of several results and their summary."""

from collections.abc import Sequence
from pathlib import Path

from gossamer.errors import UserError
from gossamer.paper.judge import has_verdict, judge
from gossamer.paper.outcomes import sections_of
from gossamer.paper.overview import write_summary
from gossamer.paper.recipe import Recipe
from gossamer.paper.result_page import write_page
from gossamer.paper.store import Store
from gossamer.paper.table_1 import write_table_1
from gossamer.paper.toy_result import write_toy


def make_folder(folder: Path) -> None:
    """Make the folder of all pages, or say why not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create '{folder}' ({error.strerror}); choose another --out") from None


def write_pages(recipes: Sequence[Recipe], store: Store, folder: Path) -> list[Path]:
    """Write the pages of these results and the summary of all, and return the paths."""
    make_folder(folder)
    paths = []
    for recipe in recipes:
        if recipe.kind == "document":
            paths += write_table_1(folder)
        elif recipe.kind == "toy":
            paths += write_toy(folder)
        else:
            paths += write_page(recipe, store, folder)
    return [*paths, *write_summary(store, folder)]


def verdicts_of(recipes: Sequence[Recipe], store: Store, scale: str) -> list[dict[str, str]]:
    """Return the verdicts at this scale on each result that was run."""
    found = []
    for recipe in filter(has_verdict, recipes):
        for section in sections_of(recipe, store):
            if section.scale.name == scale:
                verdict = judge(section)
                where = {"scale": section.scale.name, "protocol": section.protocol}
                found.append({"name": recipe.name, **where, "verdict": verdict.word, "because": verdict.sentence})
    return found
