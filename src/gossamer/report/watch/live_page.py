"""What the live page adds to the report's: a script and a style."""

import importlib.resources


def _asset(name: str) -> str:
    return (importlib.resources.files("gossamer.report.watch") / "assets" / name).read_text(encoding="utf-8")


def live_script() -> str:
    """Return the script, which runs after the report's own."""
    return _asset("live.js")


def live_style() -> str:
    """Return the style."""
    return _asset("live.css")
