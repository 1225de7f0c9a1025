"""Who may import whom, where it is easiest to forget: no package but cli knows of the command line."""

import ast
from pathlib import Path

import pytest

from pages import ROOT

SOURCE = ROOT / "src" / "gossamer"


def imported(path: Path) -> set[str]:
    """Every module that a file names in an import, at the top or inside a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return plain | named


@pytest.mark.parametrize(
    "package", ["train", "report", "paper", "bench", "engine", "runtime", "algorithms", "network", "theory"]
)
def test_nothing_below_the_command_line_imports_it(package):
    files = sorted((SOURCE / package).rglob("*.py"))
    assert files
    guilty = {path.name for path in files if any(name.startswith("gossamer.cli") for name in imported(path))}
    assert guilty == set()
