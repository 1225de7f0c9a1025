"""The live page in a real browser, beside a run that trains."""

import os
import shutil
import subprocess
import sys
import time

import pytest

from browser import LAPTOP, PHONE, opened
from flight import SOURCE
from gossamer.report.watch import run_state
from gossamer.run.status import StatusFile
from runs import begin
from waiting import until
from watching import serving

CHARTS = ("accuracy", "loss", "consensus", "predict", "message_age", "bytes_sent")


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """A run that goes on for longer than anybody looks."""
    folder = tmp_path_factory.mktemp("live")
    flags = [*("--network", "clusters:3,5", "--delay", "5", "--theta", "pv", "--criterion", "descent")]
    flags += [*("--epochs", "100000", "--eval-every", "20", "--execution", "stacked", "--lr", "0.05")]
    command = [sys.executable, "-m", "gossamer", "train", *flags, "--out", str(folder / "run")]
    train = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": SOURCE}, stdout=subprocess.DEVNULL)
    try:
        until(lambda: _lines(folder / "run/metrics.jsonl") >= 3 or train.poll() is not None, 120)
        assert train.poll() is None
        yield folder / "run"
    finally:
        train.kill()
        train.wait()


def newest(key):
    """The script that says how far a chart reaches. Its points may become fewer: long curves are thinned out."""
    return f"Math.max(...document.querySelector('#chart-{key} .plot').data.flatMap(trace => trace.x))"


def _lines(path):
    return path.read_text().count("\n") if path.exists() else 0


@pytest.mark.timeout(600)
def test_the_page_follows_a_run_that_trains(training):
    with serving(training) as url, opened(url) as seen:
        page = seen.page
        page.wait_for_selector("#live-state.running")
        assert all(max(seen.points(f"#chart-{key} .plot")) > 1 for key in CHARTS)
        first = {key: page.evaluate(newest(key)) for key in CHARTS}
        step = page.evaluate("gossamerPage.state.live.step")
        seen.until(f"gossamerPage.state.live.step > {step}")
        for key in CHARTS:
            seen.until(f"{newest(key)} > {first[key]}")
        assert "of 1,200,000" in page.inner_text("#live-progress") and "left" in page.inner_text("#live-left")
        assert 0 < float(page.eval_on_selector("#live-bar div", "bar => parseFloat(bar.style.width)")) < 100
        assert page.locator("#agents-now tbody tr").count() == 8 and page.inner_text("#live-count") == "8 alive."
        assert {"reliable links", "late links", "agents"} <= set(
            page.eval_on_selector("#network", "plot => plot.data.map(trace => trace.name)")
        )
        # What the reader has chosen stays when the page grows.
        page.click('#axis button[data-key="seconds"]')
        page.click('#runs th[data-key="accuracy"] button')
        last = "gossamerPage.state.model.runs[0].places.iterations.at(-1)"
        seen.until(f"{last} > {page.evaluate(last)}")
        assert page.get_attribute('#axis button[data-key="seconds"]', "aria-checked") == "true"
        assert page.get_attribute('#runs th[data-key="accuracy"]', "aria-sort") in ("ascending", "descending")
        assert set(seen.requests) == {url, f"{url}events"}
        seen.assert_quiet(url)


@pytest.fixture
def still(tmp_path, monkeypatch):
    """A run that stands still, to be told about by hand; it is not silent, however long a browser takes to open."""
    monkeypatch.setattr(run_state, "SILENCE", 3600.0)
    run, folder = begin(tmp_path / "run", algorithm="pc-asgd")
    run.run(folder)
    (tmp_path / "run/summary.json").unlink()
    return tmp_path / "run"


def tell(path, step, status="running", agents=None, **more):
    agents = agents or [{"state": "alive", "step": step}] * 8
    StatusFile(path, steps=36, steps_per_epoch=12).write(step, 2.0 * step, agents, status=status, **more)


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_agents_in_trouble_are_shown_and_the_end_too(still, size):
    agents = [{"state": "alive", "step": 18, "restarts": 0} for _ in range(8)]
    tell(still, 18, agents=agents, ages=[[None if i == j else 1 for j in range(8)] for i in range(8)])
    with serving(still) as url, opened(url, size) as seen:
        page = seen.page
        assert page.inner_text("#live-state") == "Training" and not page.is_visible("#live-flags")
        assert page.inner_text("#live-progress") == "step 18 of 36 · 50.0 % · epoch 1.5"
        assert page.inner_text("#live-left") == "36 s so far, about 36 s left"
        agents[2], agents[5] = {"state": "dead", "step": 9}, {"state": "rejoined", "step": 17, "restarts": 1}
        agents[6] = {**agents[6], "nonfinite": True}
        events = [{"time": time.time(), "text": "agent 2 was killed by signal 9; restart 1 of 3 in 1 s"}]
        ages = [[None if i == j else 9 for j in range(8)] for i in range(8)]
        tell(still, 19, agents=agents, events=events, ages=ages)
        page.wait_for_selector("#live-flags li")
        assert page.locator("#live-flags li").all_inner_texts() == ["Agent 6: loss is not finite", "Agent 2: dead"]
        assert page.inner_text("#live-count") == "6 alive, 1 dead, 1 rejoined."
        assert "agent 2 was killed" in page.inner_text("#live-events")
        seen.until(  # a link is as old as the message on it
            "document.getElementById('network').data.find(trace => trace.name === 'scale').marker.cmax === 9"
        )
        outlines = page.eval_on_selector(
            "#network", "plot => plot.data.find(t => t.name === 'agents').marker.line.color"
        )
        assert [place for place, colour in enumerate(outlines) if colour == "#c0291b"] == [2, 6]
        tell(still, 36, "finished")
        page.wait_for_selector("#live-state.ended")
        assert page.inner_text("#live-words") == "The run has ended: finished."
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        shutil.rmtree(still)
        page.wait_for_selector("#live-state.vanished")
        assert page.locator("#chart-accuracy .js-line").first.is_visible()
        seen.assert_quiet(url)
