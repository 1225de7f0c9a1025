"""`gossamer report`: which runs it reads, what it writes, and what it leaves alone. In a browser: next door."""

import json
import re
import sys
import webbrowser
from pathlib import Path

import pytest

from command import files_under
from gossamer.errors import UserError
from gossamer.report.html_page import MARKER, SCRIPTS, asset, make_page, plotly_script
from gossamer.report.page_model import make_model
from gossamer.report.read_runs import find_runs, read_run, read_runs
from reports import model_of, rows_of, written_model

# Which folders are runs.


def test_a_folder_of_runs_means_all_of_them_once(compared):
    names = ["dm-0", "pc-0", "pc-1", "pc-2"]
    assert [path.name for path in find_runs(compared)] == names
    records, troubles = read_runs([compared, compared / "runs" / "pc-1"])
    assert [record.name for record in records] == names and troubles == []


def _cut(path):
    text = path.read_text()
    path.write_text(text[: len(text) // 2])


def _in_the_middle(path):
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], "{half\n", *lines[3:]]))


def _changed(**values):
    def change(path):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows[1] |= values
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    return change


DAMAGES = {
    "no settings": ("config.toml", Path.unlink, "is not a run folder: it has no config.toml"),
    "half of the settings": ("config.toml", lambda path: path.write_text('task = "di'), "is not valid TOML"),
    "settings of something else": ("config.toml", lambda path: path.write_text("name = 3\n"), "has no 'task'"),
    "another network": (
        *("config.toml", lambda path: path.write_text(path.read_text().replace('"paper-1"', '"papr"'))),
        "unknown network 'papr'",
    ),
    "no metrics": ("metrics.jsonl", Path.unlink, "it has no evaluation yet"),
    "empty metrics": ("metrics.jsonl", lambda path: path.write_text(""), "it has no evaluation yet"),
    "bytes for metrics": ("metrics.jsonl", lambda path: path.write_bytes(b"\xff\xfe{}\n" * 3), "metrics.jsonl"),
    "half a line in the middle": ("metrics.jsonl", _in_the_middle, "metrics.jsonl is damaged in line 3"),
    "metrics of something else": ("metrics.jsonl", lambda path: path.write_text('{"loss": 1}\n' * 3), "in line 1"),
    "a number for a row": ("metrics.jsonl", lambda path: path.write_text("3\n4\n"), "in line 1"),
    "too few agents": ("metrics.jsonl", _changed(accuracy=[0.5, 0.5]), "in line 2"),
    "text for a number": ("metrics.jsonl", _changed(loss=["a"] * 8), "in line 2"),
    "ages of other agents": ("metrics.jsonl", _changed(ages=[[1.0]]), "in line 2"),
    "ages that are none": ("metrics.jsonl", _changed(ages=3), "in line 2"),
    "half a summary": ("summary.json", _cut, "summary.json is damaged"),
    "a list for a summary": ("summary.json", lambda path: path.write_text("[]"), "summary.json is damaged"),
    "damaged launch": ("runtime.json", lambda path: path.write_text("{"), "runtime.json' is damaged"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_run_is_refused_in_a_line_that_names_it(compared, command, kind):
    name, damage, says = DAMAGES[kind]
    damage(compared / "runs/pc-1" / name)
    before = files_under(compared.parent)
    line = command.refused("report", "compared/runs/pc-1")
    assert "'compared/runs/pc-1" in line and says in line
    assert files_under(compared.parent) == before
    # Among others it is left out, with a warning.
    outcome = command("report", "compared")
    assert (outcome.status, outcome.out) == (0, "3 runs in report.html\n")
    assert outcome.err.count("\n") == 1 and outcome.err.startswith("gossamer: warning: left out: ")
    assert "compared/runs/pc-1" in outcome.err and says in outcome.err
    model = written_model(Path("report.html"))
    assert [run["name"] for run in model["runs"]] == ["dm-0", "pc-0", "pc-2"] and len(model["warnings"]) == 1


def test_what_is_no_run_folder_is_named(folder, command):
    (folder / "empty").mkdir()
    (folder / "foreign").mkdir()
    (folder / "foreign/photo.txt").write_text("hello")
    assert "there is no 'nowhere'" in command.refused("report", "nowhere")
    assert "'empty' is empty" in command.refused("report", "empty")
    assert "'foreign' holds no run" in command.refused("report", "foreign")
    assert "'foreign/photo.txt' is a file" in command.refused("report", "foreign/photo.txt")
    assert "'empty' is empty; give a folder that train or compare wrote (and 1 more" in command.refused(
        "report", "empty", "foreign"
    )
    assert not (folder / "report.html").exists()


def test_a_name_that_is_missing_among_others_is_a_warning(compared, command):
    outcome = command("report", "compared/runs/pc-0", "compared/runs/pc-9")
    assert outcome.status == 0 and "there is no 'compared/runs/pc-9'" in outcome.err


def test_a_run_that_goes_on_is_shown_as_far_as_it_is(compared):
    path = compared / "runs/pc-0"
    whole = rows_of(path)
    (path / "summary.json").unlink()
    (path / "status.json").unlink()
    lines = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (path / "metrics.jsonl").write_text("".join(lines[:4]) + lines[4][:40])
    record = read_run(path)
    assert record.rows == whole[:4] and record.status == "unfinished"
    model = make_model([record])
    assert model["runs"][0]["iterations"] == whole[3]["step"] and model["runs"][0]["seconds"] is not None
    (path / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match="it has no evaluation yet"):
        read_run(path)
    begun = make_model([read_run(path, may_be_empty=True)])
    assert all(one["curves"] == [] for one in begun["charts"]) and make_page(begun)


# The page.


def test_the_page_holds_all_it_needs_once(compared, command):
    assert command.well("report", "compared").out == "4 runs in report.html\n"
    text = Path("report.html").read_text(encoding="utf-8")
    assert text.count(plotly_script()) == 1 and text.count("plotly.js v") == 1
    rest = text.replace(plotly_script(), "")
    assert text.lower().count("<script") - plotly_script().lower().count("<script") == 3
    assert not re.search(r"""(src|href)\s*=\s*["']?\s*(https?:)?//""", rest) and "@import" not in rest
    assert "http://" not in rest and "https://" not in rest
    assert "default-src 'none'" in rest
    assert written_model(Path("report.html")) == json.loads(json.dumps(model_of(Path("compared"))))
    assert all(asset(name) in text for name in (*SCRIPTS, "style.css"))


def test_a_report_is_written_over_and_nothing_else(compared, command):
    Path("mine.html").write_text("<p>my own page</p>")
    before = files_under(compared.parent)
    assert "'mine.html' exists and is not a report" in command.refused("report", "compared", "-o", "mine.html")
    assert "'compared' is a folder" in command.refused("report", "compared", "-o", "compared")
    assert "there is no folder 'no'" in command.refused("report", "compared", "-o", "no/r.html")
    assert files_under(compared.parent) == before
    Path("old.html").write_text(f"<!doctype html>\n{MARKER}\nold")
    assert command.well("report", "compared/runs/pc-0", "-o", "old.html").out == "1 run in old.html\n"
    assert len(written_model(Path("old.html"))["runs"]) == 1


def test_ctrl_c_leaves_nothing_half_written(compared, command, monkeypatch):
    Path("old.html").write_text(f"{MARKER} old")

    def stop(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", stop)  # all is written but not yet in its place
    before = files_under(compared.parent)
    outcome = command("report", "compared", "-o", "old.html")
    assert (outcome.status, outcome.err) == (130, "gossamer: interrupted\n")
    assert files_under(compared.parent) == before


def test_without_plotly_a_line_says_what_to_install(compared, command, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    assert "pip install plotly" in command.refused("report", "compared")
    assert not Path("report.html").exists()


def test_open_shows_the_page(compared, command, monkeypatch):
    shown = []
    monkeypatch.setattr(webbrowser, "open", lambda url: shown.append(url) or True)
    command.well("report", "compared/runs/pc-0", "--open", "-o", "a b.html")
    assert shown == [Path("a b.html").resolve().as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    outcome = command("report", "compared/runs/pc-0", "--open", "-o", "a b.html")
    assert outcome.status == 0 and "open a b.html yourself" in outcome.err
