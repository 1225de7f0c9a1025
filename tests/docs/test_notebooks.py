"""The notebooks in examples/ hold the outputs of their code, which runs anew."""

import base64
import json
import re
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from flight import SOURCE
from pages import ROOT

EXAMPLES = ROOT / "examples"
NAMES = ("first-steps", "own-algorithm")


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)


def outputs(notebook: nbformat.NotebookNode) -> list[Any]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def shown(notebook: nbformat.NotebookNode, kind: str) -> list[str]:
    return [output.data[kind] for output in outputs(notebook) if kind in output.get("data", {})]


def accuracies(notebook: nbformat.NotebookNode) -> dict[str, float]:
    """The accuracy of each algorithm in the first comparison."""
    (table, *_) = [text for text in shown(notebook, "text/plain") if "averaged model %" in text]
    rows = [re.split(r" {2,}", line) for line in table.splitlines()[2:]]
    return {row[0]: float(row[2].split(" ± ")[0]) for row in rows}


def check(notebook: nbformat.NotebookNode, name: str) -> None:
    """What a reader is to see."""
    assert [output for output in outputs(notebook) if output.output_type == "error"] == []
    assert [output.text for output in outputs(notebook) if output.get("name") == "stderr"] == []
    found = accuracies(notebook)
    html = "".join(shown(notebook, "text/html"))
    if name == "first-steps":
        assert list(found)[-1] == "d-asgd" and found["dm-asgd"] > 85 > found["d-asgd"]
        assert re.search(r"pc-asgd, step (\d+) of \1, accuracy [\d.]+ %, loss", html)  # the widget at its end
        assert len(shown(notebook, "image/png")) == 2
    else:
        assert found["fading"] > found["d-asgd"] + 5 and set(found) == {
            "d-asgd",
            "fading",
            "fading keep=0.5",
            "dm-asgd",
        }
        assert "ring:8: 8 agents; 0 reliable links; 8 late links, delay trace" in html
        assert len(shown(notebook, "image/png")) == 2
    assert html.count("<svg") > 5 and "<script" not in html


@pytest.mark.parametrize("name", NAMES)
def test_what_is_stored_was_executed_and_is_small(name):
    notebook = read(name)
    nbformat.validate(notebook)
    check(notebook, name)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(len(base64.b64decode(picture)) < 100_000 for picture in shown(notebook, "image/png"))
    text = (EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8")
    assert not re.search(r"/(tmp|home|root|usr)/", text) and json.loads(text)["nbformat"] == 4


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_anew_and_shows_the_same(name, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = read(name)
    before = accuracies(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    check(notebook, name)
    assert accuracies(notebook) == pytest.approx(before, abs=1.5)  # other machines round otherwise


def test_the_rule_is_twenty_lines():
    (cell,) = [cell for cell in read("own-algorithm").cells if "@gm.register" in cell.source]
    assert len([line for line in cell.source.splitlines() if line.strip()]) <= 20


def test_links_lead_somewhere():
    prose = "".join(cell.source for name in NAMES for cell in read(name).cells if cell.cell_type == "markdown")
    targets = re.findall(r"\]\(([^)#]+)", prose)
    assert targets and [target for target in targets if not (EXAMPLES / target).exists()] == []
