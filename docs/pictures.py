"""Take the pictures of report.md and watch.md.

Trains a small comparison, writes its report and photographs it in Chromium, then the live page of a run.

Run from the root of the repository: python docs/pictures.py (needs the test extra, and chromium on the path).
"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).parent / "images"
LAPTOP, PHONE = {"width": 1366, "height": 1000}, {"width": 390, "height": 844}
RUNS = (
    *("compare", "--algorithms", "sync,d-asgd,pc-asgd/theta=pv,dm-asgd", "--delay", "uniform:5,40", "--lr", "0.1"),
    *("--epochs", "60", "--eval-every", "30", "--seeds", "3", "--no-plots"),
)
LIVE = (
    *("train", "--algorithm", "pc-asgd", "--theta", "pv", "--network", "clusters:3,5", "--delay", "uniform:5,40"),
    *("--lr", "0.05", "--epochs", "400", "--eval-every", "30", "--seed", "1"),
)
SEEN = 1500  # of its 4800 steps: the time of the screenshot


def gossamer(*arguments: str) -> None:
    """Run a command of gossamer."""
    subprocess.run([sys.executable, "-m", "gossamer", *arguments], check=True)


def photograph(browser: Browser, url: str, name: str, size: dict[str, int], show: str | None = None) -> None:
    """Take a screenshot of a page from its top, or from an element."""
    page = browser.new_page(viewport=size, has_touch=size == PHONE)
    page.goto(url)
    page.wait_for_selector(".js-plotly-plot .plot-container")
    if show is not None:
        page.select_option("#run", label="pc-asgd-theta=pv-seed0")
        page.evaluate("show => scrollTo(0, document.querySelector(show).getBoundingClientRect().top - 90)", show)
    page.wait_for_timeout(1000)  # until everything is drawn
    page.screenshot(path=IMAGES / f"{name}.png")
    page.close()


def photograph_live(browser: Browser, run: str) -> None:
    """Train a run, and take screenshots of its live page in the meantime."""
    command = [sys.executable, "-m", "gossamer"]
    train = subprocess.Popen([*command, *LIVE, "--out", run], stdout=subprocess.DEVNULL)
    while train.poll() is None and _steps_of(run) < SEEN:
        time.sleep(0.1)
    watch = subprocess.Popen([*command, "watch", run, "--json"], stdout=subprocess.PIPE, text=True)
    assert watch.stdout is not None
    url = json.loads(watch.stdout.readline())["url"]
    photograph(browser, url, "watch-laptop", LAPTOP)
    photograph(browser, url, "watch-phone", PHONE)
    for process in (watch, train):
        process.send_signal(signal.SIGINT)
        process.wait()


def _steps_of(run: str) -> int:
    status = Path(run) / "status.json"
    return int(json.loads(status.read_text(encoding="utf-8"))["step"]) if status.exists() else 0


def main() -> None:
    """Take all screenshots."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        report = Path(folder) / "report.html"
        gossamer(*RUNS, "--out", f"{folder}/runs")
        gossamer("report", f"{folder}/runs", "-o", str(report))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        photograph(browser, report.as_uri(), "report-laptop", LAPTOP)
        photograph(browser, report.as_uri(), "report-inside", LAPTOP, "#inside")
        photograph(browser, report.as_uri(), "report-phone", PHONE)
        photograph_live(browser, f"{folder}/live")
        browser.close()


if __name__ == "__main__":
    main()
