"""A hook of mkdocs: links that leave docs/ become plain file names."""

import re
from pathlib import PurePosixPath
from typing import Any

LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<to>\.\./[^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links out of the site by the name of the file."""
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
