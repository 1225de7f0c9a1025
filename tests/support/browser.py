"""A page in a real browser: headless Chromium, what it complained about, and what it asked for."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

try:
    from playwright.sync_api import Page, sync_playwright
except ImportError:
    if os.environ.get("BROWSER_REQUIRED"):
        raise
    pytest.skip("there is no playwright; pip install 'gossamer[test]'", allow_module_level=True)

LAPTOP, PHONE = (1366, 900), (390, 844)
PATIENCE = 90_000  # milliseconds: a browser starts in one second, or in many where others want the machine too
INSTALL = "there is no chromium to open pages with; install it, on Debian: apt-get install chromium"


def chromium() -> str:
    """Return where Chromium is; without one the test is skipped, but never in continuous integration."""
    path = shutil.which("chromium")
    if path is None and os.environ.get("BROWSER_REQUIRED"):
        pytest.fail(INSTALL)
    if path is None:
        pytest.skip(INSTALL)
    return path


@dataclass
class Opened:
    """A page that is open, with all that it said and all that it asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def points(self, selector: str) -> list[int]:
        """Return how many points each curve of a chart has that is not empty."""
        script = "plot => (plot.data || []).map(trace => (trace.z || trace.x || []).length).filter(n => n > 0)"
        return self.page.eval_on_selector(selector, script)

    def drawn(self, selector: str) -> int:
        """Return how many lines there are on the screen, in the picture that plotly has made."""
        return self.page.locator(f"{selector} .scatterlayer path.js-line").count()

    def until(self, script: str, seconds: float = 120.0) -> None:
        """Wait until something is true on the page, whose policy keeps Playwright's own way of waiting out.

        A page that costs much is made anew twice a minute at most, which is what the patience has to cover.
        """
        deadline = time.monotonic() + seconds
        while not self.page.evaluate(script):
            assert time.monotonic() < deadline, script
            self.page.wait_for_timeout(100)

    def assert_quiet(self, origin: str) -> None:
        """Insist that nothing was complained about and nothing asked for beyond the page's own origin."""
        assert self.complaints == []
        assert [url for url in self.requests if not url.startswith((origin, "data:", "blob:"))] == []


@contextmanager
def opened(url: str, size: tuple[int, int] = LAPTOP) -> Iterator[Opened]:
    """Open an address at the size of a screen, with the network of the browser cut off for others to notice."""
    with sync_playwright() as playwright:
        # As root, which continuous integration is, Chromium has no sandbox.
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"], timeout=PATIENCE)
        width, height = size
        page = browser.new_page(viewport={"width": width, "height": height}, has_touch=width < 600)
        page.set_default_timeout(PATIENCE)
        seen = Opened(page)
        page.on("console", lambda message: _complain(seen, message))
        page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        page.on("request", lambda request: seen.requests.append(request.url))
        try:
            page.goto(url)
            page.wait_for_selector(".js-plotly-plot .plot-container")
            yield seen
        finally:
            browser.close()


def _complain(seen: Opened, message: Any) -> None:
    if message.type in ("error", "warning"):
        seen.complaints.append(f"{message.type}: {message.text}")
