"""The report page: markup, style, scripts, plotly and the data in one HTML file."""

import html
import importlib.resources
import json
import re
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.state.checkpoint import write_bytes

MARKER = "<!-- written by gossamer report -->"  # a file with this line may be overwritten
SCRIPTS = ("format.js", "charts.js", "network.js", "agents.js", "timeline.js", "tables.js", "app.js")
# The browser refuses to load anything from elsewhere.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def asset(name: str, package: str = "gossamer.report") -> str:
    """Return the text of a file in the `assets` folder of a package."""
    return (importlib.resources.files(package) / "assets" / name).read_text(encoding="utf-8")


def plotly_script() -> str:
    """Return plotly's JavaScript, which is part of its Python package."""
    try:
        from plotly.offline import get_plotlyjs  # slow to import, and only reports need it
    except ImportError:
        raise UserError("the page needs plotly, which is not installed; pip install plotly") from None
    return str(get_plotlyjs())


def make_page(model: dict[str, Any], *, live_script: str = "", live_style: str = "", policy: str = POLICY) -> str:
    """Return the page as HTML; a live page adds a script, a style and its content security policy."""
    scripts = "\n".join(asset(name) for name in SCRIPTS)
    parts = {
        "POLICY": policy,
        "TITLE": html.escape(f"{model['header']['title']} · gossamer"),
        "MARKER": MARKER,
        "STYLE": asset("style.css") + live_style,
        "PLOTLY": _inside_script(plotly_script()),
        "MODEL": _json(model),
        "SCRIPTS": _inside_script(scripts),
        "LIVE": _inside_script(live_script),
    }
    # In one pass, because a part may contain the placeholder of another.
    pieces = asset("page.html").split("@@")
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def _inside_script(text: str) -> str:
    """Return a script without `</script`, which would end its element."""
    return re.sub("</(?=script)", r"<\\/", text, flags=re.IGNORECASE)


def _json(model: dict[str, Any]) -> str:
    """Return the model as JSON without `<`, which could end its element."""
    text = json.dumps(model, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def check_writable(path: Path) -> None:
    """Refuse to overwrite a file that is not a report, and a folder that does not exist."""
    if path.is_dir():
        raise UserError(f"'{path}' is a folder; give the name of a file, as -o {path / 'report.html'}")
    if not path.parent.is_dir():
        raise UserError(f"there is no folder '{path.parent}'; make it, or choose another -o")
    if path.exists():
        with path.open("rb") as file:
            if MARKER.encode() not in file.read(4096):
                raise UserError(f"'{path}' exists and is not a report of gossamer; choose another -o")


def write_page(path: Path, model: dict[str, Any]) -> None:
    """Write the page in one piece; it may replace an older report."""
    check_writable(path)
    write_bytes(path, make_page(model).encode("utf-8"), "make room, or choose another -o")
