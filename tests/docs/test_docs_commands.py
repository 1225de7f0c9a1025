"""Every command of the documentation: those in bash blocks are run, the others have to be readable."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass

import pytest

from gossamer.cli.main import COMMANDS, load_command
from pages import PAGES, ROOT, Block, blocks, words

RUN = [page for page in PAGES if any(block.language == "bash" for block in blocks(page))]
NUMBER = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?")


def is_run(block: Block) -> bool:
    return block.language == "bash" and block.title in ("", "refused")


@dataclass
class Step:
    """A command that is run, the status it must have, and what it must print."""

    command: str
    status: int
    refusal: str = ""
    prints: str = ""

    def check(self, status: int, wrote: str) -> None:
        assert status == self.status, f"{self.command}\n{wrote}"
        missing = [line for line in loosely(self.prints) if line not in loosely(wrote)]
        assert not missing, f"{self.command}\nprints\n{wrote}\nbut not {missing}"
        pattern = ".*".join(re.escape(fixed) for fixed in self.refusal.split("…"))
        assert re.search(pattern, wrote), f"{self.command}\nprints\n{wrote}"


def steps(page):
    found: list[Step] = []
    for block in blocks(page):
        if is_run(block):
            refused = {"status": 2, "refusal": block.under} if block.title else {"status": 0}
            found += [Step(command, **refused) for command in block.commands]
        elif block.title == "prints" and found:
            found[-1].prints = block.text
    return found


def loosely(text: str) -> list[str]:
    """Lines without what differs from machine to machine: numbers, and how wide columns are."""
    return [" ".join(NUMBER.sub("#", line).split()) for line in text.splitlines() if line.strip()]


@pytest.fixture
def shell(tmp_path):
    """Runs commands in a folder that has the page's files."""

    def run(page, commands):
        for block in blocks(page):
            if block.is_file:
                (tmp_path / block.title).write_text(block.text, encoding="utf-8")
        ended = subprocess.run(
            [sys.executable, "-W", "ignore", str(ROOT / "tests" / "support" / "page_at_work.py")],
            input=json.dumps(commands),
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=os.environ | {"COLUMNS": "120", "PYTHONPATH": str(ROOT / "src")},
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    return run


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_every_command_of_a_page_does_what_the_page_says(page, shell):
    asked = steps(page)
    assert asked, "a page whose bash blocks are all only read"
    for step, ended in zip(asked, shell(page, [step.command for step in asked]), strict=True):
        step.check(*ended)


def gossamer_lines():
    """Every line of every page that calls gossamer, in whatever block."""
    for page in PAGES:
        for block in blocks(page):
            if block.language in ("", "bash"):
                for line in block.commands:
                    if line.startswith("gossamer "):
                        yield page.name, line


def flags_of(name: str) -> set[str]:
    """The flags of a command."""
    return {flag for parameter in load_command(name).params for flag in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize(("page", "line"), sorted(set(gossamer_lines())))
def test_every_command_exists_with_its_flags(page, line):
    _, name, *arguments = words(line)
    assert name in COMMANDS, f"{page}: {line}"
    own = arguments[: next((k for k, word in enumerate(arguments) if word.endswith(".py")), None)]  # a script's follow
    used = {word.split("=")[0] for word in own if word.startswith("--")}
    assert used <= flags_of(name) | {"--help"}, f"{page}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_flag_in_a_sentence_belongs_to_the_command_before_it(page):
    for span in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")):
        name, *rest = span.removeprefix("gossamer ").split()
        if name in COMMANDS:
            used = {flag for word in rest for flag in re.findall(r"^--[a-z][a-z-]+", word)}
            assert used <= flags_of(name) | {"--help"}, span


def test_commands_that_are_only_read_say_why():
    told = {block.title for page in RUN for block in blocks(page) if block.language == "bash" and not is_run(block)}
    assert told == {"a few minutes, once", "with torchrun or Ray", "on two machines"}
