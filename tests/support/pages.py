"""The pages of the documentation: their fenced blocks, and what a shell would do with those of one page.

* bash: run, line by line, in a folder of the page's own; status 0
* bash title="refused": run; status 2, and the text of the heading above it, with … for what differs
* bash with another title: only read; it needs several machines, or minutes
* any language, titled with a file's name: written into that folder before anything runs
* text title="prints": what the bash block before it prints; numbers may differ
* python: run by test_docs.py, all blocks of a page as one program
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"  # where the programs lie that tests start
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r'^```(?P<language>\w*)(?: title="(?P<title>[^"]*)")?\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^### `(.+)`$", re.MULTILINE)
FILE_NAME = re.compile(r"[\w-]+\.\w+")


@dataclass(frozen=True)
class Block:
    language: str
    title: str
    text: str
    under: str  # the last heading above it that is a text of the program

    @property
    def is_file(self) -> bool:
        return FILE_NAME.fullmatch(self.title) is not None

    @property
    def commands(self) -> list[str]:
        """The lines of a shell block; a backslash joins two."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in lines if line.strip() and not line.startswith("#")]


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    made = []
    for block in FENCE.finditer(text):
        under = HEADING.findall(text, 0, block.start())
        made.append(Block(block["language"], block["title"] or "", block["text"], under[-1] if under else ""))
    return made


def words(command: str) -> list[str]:
    """A line as a shell splits it, without its comment."""
    return shlex.split(command, comments=True)
