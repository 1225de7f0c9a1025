"""The documentation tells the truth: its code runs, its file tree is the tree, its flags and names exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.algorithms import algorithm_names, describe_algorithms
from gossamer.cli.main import app
from gossamer.engine.settings import SETTING_NAMES

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAPER = ("sync", "d-asgd", "p-asgd", "c-asgd", "pc-asgd")  # whose options are readings of the paper

PACKAGES = ("network", "algorithms", "nn", "data", "state", "runtime", "engine", "theory", "experiments")
TORCHRUN = ("--nnodes", "--nproc-per-node", "--max-restarts")  # flags of torchrun's own


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_every_python_block_runs(page):
    # In a process of its own: a page may register an algorithm, which would stay on the list of the other tests.
    code = "\n".join(blocks(page, "python"))
    ended = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_the_file_tree_of_the_readme_names_every_module_and_nothing_else():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tree = readme[readme.index("src/gossamer/\n") :]
    named = set(re.findall(r"^ +(\w+\.py) ", tree, flags=re.MULTILINE))
    package = ROOT / "src" / "gossamer"
    listed = [package, *(package / name for name in PACKAGES)]
    present = {file.name for folder in listed for file in folder.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert named - {"__init__.py"} == present


def test_every_flag_in_the_documentation_exists():
    from typer.main import get_command

    known = {flag for command in get_command(app).commands.values() for p in command.params for flag in p.opts}
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert used - known - {"--help", *TORCHRUN} == set()


def test_every_option_named_in_the_readings_exists_and_every_option_is_named():
    text = (ROOT / "docs" / "readings.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.replace("\\|", "¦").splitlines() if line.startswith("|")]
    three_columns = [row for row in rows if len(row) == 5]
    named = {name for row in three_columns for name in re.findall(r"`(\w+)(?:=[^`]*)?`", row[-2])}
    options = {name for rule in describe_algorithms() if rule["name"] in PAPER for name in rule["options"]}
    assert named <= options | set(SETTING_NAMES)
    assert options - {"theta", "lam", "gain"} <= named


def test_every_algorithm_is_described():
    text = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in text for name in algorithm_names())
