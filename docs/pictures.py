"""Make the pictures of the README again: train a small comparison, write its report, photograph it in Chromium.

Run from the root of the repository: python docs/pictures.py (needs the test extra, and chromium on the path).
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).parent / "images"
LAPTOP, PHONE = {"width": 1366, "height": 1000}, {"width": 390, "height": 844}
RUNS = (
    *("compare", "--algorithms", "sync,d-asgd,pc-asgd/theta=pv,dm-asgd", "--delay", "uniform:5,40", "--lr", "0.1"),
    *("--epochs", "60", "--eval-every", "30", "--seeds", "3", "--no-plots"),
)


def gossamer(*arguments: str) -> None:
    """Run a command of gossamer."""
    subprocess.run([sys.executable, "-m", "gossamer", *arguments], check=True)


def photograph(browser: Browser, url: str, name: str, size: dict[str, int], show: str | None = None) -> None:
    """Take a picture of a page, from its top or with an element at the top."""
    page = browser.new_page(viewport=size, has_touch=size == PHONE)
    page.goto(url)
    page.wait_for_selector(".js-plotly-plot .plot-container")
    if show is not None:
        page.select_option("#run", label="pc-asgd-theta=pv-seed0")
        page.evaluate("show => scrollTo(0, document.querySelector(show).getBoundingClientRect().top - 90)", show)
    page.wait_for_timeout(1000)  # until all is drawn
    page.screenshot(path=IMAGES / f"{name}.png")
    page.close()


def main() -> None:
    """Make all pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        report = Path(folder) / "report.html"
        gossamer(*RUNS, "--out", f"{folder}/runs")
        gossamer("report", f"{folder}/runs", "-o", str(report))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        photograph(browser, report.as_uri(), "report-laptop", LAPTOP)
        photograph(browser, report.as_uri(), "report-inside", LAPTOP, "#inside")
        photograph(browser, report.as_uri(), "report-phone", PHONE)
        browser.close()


if __name__ == "__main__":
    main()
