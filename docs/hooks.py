"""Hooks of mkdocs: links that leave docs/ become plain file names, and the first page begins as README does."""

import re
from pathlib import Path, PurePosixPath
from typing import Any

OPENING = "<!-- the opening of README.md -->"
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<to>\.\./[^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Insert README's opening, and replace links out of the site by the name of the file."""
    if OPENING in markdown:
        readme = Path(__file__).parents[1] / "README.md"
        opening = readme.read_text(encoding="utf-8").partition("\n## ")[0]
        markdown = markdown.replace(OPENING, opening.replace("](docs/", "]("))
    folder = PurePosixPath(page.file.src_uri).parent

    def name_of(link: re.Match[str]) -> str:
        parts: list[str] = []
        for part in (folder / link["to"]).parts:
            if part == ".." and not parts:
                return f"`{link['to'].replace('../', '')}`"
            if part == "..":
                parts.pop()
            else:
                parts.append(part)
        return link[0]

    return LINK.sub(name_of, markdown)
