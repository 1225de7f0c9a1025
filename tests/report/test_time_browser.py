"""Runs on a testbed in a real browser: the report's timeline and table, and the live page of a run under way."""

import shutil

import pytest

from browser import LAPTOP, PHONE, opened
from gossamer.report.html_page import make_page
from gossamer.report.page_model import make_model
from gossamer.report.read_runs import read_runs
from gossamer.report.watch import run_state
from gossamer.run.status import StatusFile
from timed_runs import SECONDS, make_timed_run
from watching import serving

BARS = "plot => plot.data.filter(trace => trace.type === 'bar').map(trace => [trace.name, trace.y.length])"
RANGE = "plot => plot.layout.xaxis.range"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("timed")
    make_timed_run(folder / "runs/sync-0")
    make_timed_run(folder / "runs/late-0", "d-asgd", target="0.999")
    return folder / "runs"


@pytest.fixture(scope="module")
def report(runs):
    path = runs.parent / "report.html"
    path.write_text(make_page(make_model(read_runs([runs])[0])), encoding="utf-8")
    return path


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_the_timeline_shows_what_agents_did(report, size):
    with opened(report.as_uri(), size) as seen:
        page = seen.page
        assert page.get_attribute('#axis button[data-key="sim_seconds"]', "aria-checked") == "true"
        title = page.eval_on_selector("#chart-loss .plot", "plot => plot.layout.xaxis.title.text")
        assert title == "Simulated seconds"
        assert [kind for kind, _ in page.eval_on_selector("#timeline", BARS)] == ["computing"]  # d-asgd never waits
        page.click("#runs tbody button >> text=sync-0")
        told = page.evaluate("gossamerPage.state.run.timeline")
        counts = {kind: len(spells["agent"]) for kind, spells in told["spells"].items() if spells["agent"]}
        assert dict(page.eval_on_selector("#timeline", BARS)) == counts and set(counts) == {"computing", "waiting"}
        assert page.locator("#timeline .bars path").count() == sum(counts.values())
        line = page.eval_on_selector("#timeline", "plot => plot.data.at(-1).x.length")
        assert line == 3 * len(told["messages"]["from"])
        # From the first iterations to the whole run; a reader's zoom stays when the page is drawn again.
        page.click('#timeline-switch button[data-key="whole"]')
        assert page.eval_on_selector("#timeline", RANGE) == [0, SECONDS]
        page.evaluate("Plotly.relayout(document.getElementById('timeline'), {'xaxis.range': [2, 5]})")
        page.evaluate("gossamerPage.show(gossamerPage.state.model)")
        assert page.eval_on_selector("#timeline", RANGE) == [2, 5]
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        seen.assert_quiet(report.as_uri())


def test_a_target_that_is_not_reached_comes_after_those_that_are(report):
    with opened(report.as_uri()) as seen:
        for key in ("seconds_to_target", "steps_to_target", "megabytes_to_target"):
            for _ in range(2):
                seen.page.click(f'#runs th[data-key="{key}"] button')
                assert seen.page.locator("#runs tbody th").all_inner_texts() == ["sync-0", "late-0"]
        assert seen.page.locator("#runs tbody tr >> nth=1").locator("text=not reached").count() == 3
        seen.assert_quiet(report.as_uri())


def test_the_live_page_follows_simulated_time(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(run_state, "SILENCE", 3600.0)
    path = shutil.copytree(runs / "sync-0", tmp_path / "run")
    timeline = (path / "timeline.csv").read_text()
    for name in ("summary.json", "timeline.csv"):
        (path / name).unlink()
    lines = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (path / "metrics.jsonl").write_text("")

    def tell(step, now, status="running"):
        clock = {"sim_seconds": now, "sim_end": SECONDS}
        agents = [{"state": state, "step": step} for state in ("alive", "down", "alive")]
        StatusFile(path, steps=None).write(step, now, agents, status=status, clock=clock)

    tell(0, 0.0)
    with serving(path) as url, opened(url) as seen:
        page = seen.page
        assert page.get_attribute('#axis button[data-key="iterations"]', "aria-checked") == "true"  # no row yet
        (path / "metrics.jsonl").write_text("".join(lines[:7]))
        tell(1, 3.0)
        seen.until(
            "document.getElementById('live-progress').textContent.startsWith('3.0 of 12.0 simulated s · step 1 ')"
        )
        assert page.inner_text("#live-count") == "2 alive, 1 down." and not page.is_visible("#live-flags")
        assert "25.0 %" in page.inner_text("#live-progress") and "about 9 s left" in page.inner_text("#live-left")
        last = "Math.max(...document.querySelector('#chart-loss .plot').data.flatMap(trace => trace.x))"
        seen.until("gossamerPage.state.axis === 'sim_seconds'")
        seen.until(f"{last} === 3")
        page.click('#axis button[data-key="epochs"]')
        with (path / "metrics.jsonl").open("a") as file:
            file.write("".join(lines[7:]))
        (path / "timeline.csv").write_text(timeline)
        shutil.copy(runs / "sync-0/summary.json", path)
        tell(5, SECONDS, "finished")
        page.wait_for_selector("#live-state.ended")
        seen.until("gossamerPage.state.run.sim_seconds === 12")
        assert page.get_attribute('#axis button[data-key="epochs"]', "aria-checked") == "true"  # the reader's choice
        page.wait_for_selector("#timeline .bars path", state="attached")
        seen.assert_quiet(url)
