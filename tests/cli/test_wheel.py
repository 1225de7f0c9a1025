"""The wheel, built and unpacked where nothing else lies, holds all files and does what the source tree does."""

import json
import os
import subprocess
import sys
import zipfile
from configparser import ConfigParser

import pytest

from pages import ROOT
from watching import get

# `gossamer` as a user of the wheel has it: it trains, makes a page of the run, and serves one until it is ended.
PROGRAM = """
import contextlib, sys
import gossamer
from gossamer.cli.main import main
print(gossamer.__file__, flush=True)
train = "train --network ring:3 --algorithm d-asgd --delay 1 --model linear --epochs 1 --out run --json"
for line in (train, "report run --out page.html", "watch run --json"):
    try:
        main(line.split())
    except SystemExit as end:
        if end.code:
            sys.exit(f"{line} ended with status {end.code}")
"""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The folder that the wheel's files are unpacked into."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder / "dist")]
    ended = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    (wheel,) = (folder / "dist").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def contents(folder):
    paths = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_the_wheel_holds_every_file_of_the_package_and_no_other(unpacked):
    source, built = contents(ROOT / "src" / "gossamer"), contents(unpacked / "gossamer")
    assert built == source
    assert {"py.typed", "report/assets/page.html", "report/watch/assets/live.js"} <= set(built)
    (described,) = (path for path in unpacked.iterdir() if path.name != "gossamer")
    entries = ConfigParser()
    entries.read(described / "entry_points.txt")
    assert dict(entries["console_scripts"]) == {"gossamer": "gossamer.cli.main:main"}
    assert (described / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_a_run_its_report_and_its_page_work_from_the_wheel(unpacked, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(unpacked), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        lines = [process.stdout.readline() for _ in range(4)]
        served = get(json.loads(lines[-1])["url"]) if lines[-1] else (0, {}, "")
    finally:
        process.terminate()
        _, err = process.communicate(timeout=90)
    assert lines[0] == f"{unpacked / 'gossamer' / '__init__.py'}\n", err
    assert json.loads(lines[1])["status"] == "finished"
    status, _, live = served
    assert status == 200, err
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for name in ("app.js", "charts.js", "style.css"):
        asset = (unpacked / "gossamer" / "report" / "assets" / name).read_text(encoding="utf-8")
        assert asset in page and asset in live, name
    assert (unpacked / "gossamer" / "report" / "watch" / "assets" / "live.js").read_text(encoding="utf-8") in live
