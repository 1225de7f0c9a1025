"""The documentation tells the truth: its code runs, its flags and names exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.algorithms import describe_algorithms
from gossamer.cli.main import COMMANDS, load_command
from gossamer.run.settings import SETTING_NAMES
from pages import PAGES, ROOT, blocks

PAPER = ("sync", "d-asgd", "p-asgd", "c-asgd", "pc-asgd")  # whose options are readings of the paper
TORCHRUN = ("--nnodes", "--nproc-per-node", "--max-restarts")  # flags of torchrun's own


def code_of(page: Path) -> str:
    """The python blocks of a page as one program; those with a title are files, which its commands use."""
    return "\n".join(block.text for block in blocks(page) if block.language == "python" and not block.title)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [page for page in PAGES if code_of(page)], ids=lambda page: page.name)
def test_every_python_block_runs(page):
    # In a process of its own: a page may register an algorithm, which would stay on the list of the other tests.
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", code_of(page)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_every_flag_in_the_documentation_exists():
    flags = [p for name in COMMANDS for p in load_command(name).params]
    known = {name for flag in flags for name in (*flag.opts, *flag.secondary_opts)}
    for script in (ROOT / "benchmarks").glob("*.py"):
        known |= set(re.findall(r'add_argument\("(--[a-z-]+)"', script.read_text(encoding="utf-8")))
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert used - known - {"--help", "--version", *TORCHRUN} == set()


def test_every_option_named_in_the_readings_exists_and_every_option_is_named():
    text = (ROOT / "docs" / "readings.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.replace("\\|", "¦").splitlines() if line.startswith("|")]
    three_columns = [row for row in rows if len(row) == 5]
    named = {name for row in three_columns for name in re.findall(r"`(\w+)(?:=[^`]*)?`", row[-2])}
    options = {name for rule in describe_algorithms() if rule["name"] in PAPER for name in rule["options"]}
    assert named <= options | set(SETTING_NAMES)
    ours = {"gain", "predictor", "damping", "lag"}
    assert options - ours - {"theta", "lam"} <= named


def test_every_algorithm_is_described():
    text = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    assert all(f"| `{rule['name']}` | {rule['origin']} |" in text for rule in describe_algorithms())


@pytest.mark.parametrize("rule", describe_algorithms(), ids=lambda rule: rule["name"])
def test_a_page_says_in_one_line_whether_its_rule_is_as_published(rule):
    name = "dc-asgd" if rule["name"].startswith("dc-asgd-") else rule["name"]
    text = (ROOT / "docs" / "algorithms" / f"{name}.md").read_text(encoding="utf-8")
    begins = {"published": "**As published** (", "adapted": "**Adapted:** ", "ours": "**Ours:** "}
    lines = [line for line in text.splitlines() if line.startswith(tuple(begins.values()))]
    assert len(lines) == 1 and lines[0].startswith(begins[rule["origin"]])
