"""The page of `gossamer report` in a real browser: what a reader sees and can do with it."""

import pytest

from browser import LAPTOP, PHONE, opened
from gossamer.experiments.report.model import make_model
from gossamer.experiments.report.page import make_page
from gossamer.experiments.report.read import read_runs
from runs import begin

CHARTS = ("accuracy", "loss", "consensus", "predict", "message_age", "bytes_sent")
SETTINGS = ("d-asgd", "pc-asgd")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two settings with two seeds each."""
    folder = tmp_path_factory.mktemp("runs")
    for algorithm in SETTINGS:
        for seed in (0, 1):
            run, made = begin(folder / f"{algorithm}-{seed}", algorithm=algorithm, seed=seed)
            run.run(made)
    return folder


@pytest.fixture(scope="module")
def report(runs):
    path = runs.parent / "report.html"
    path.write_text(make_page(make_model(read_runs([runs])[0])), encoding="utf-8")
    return path


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_every_chart_has_data_and_nothing_is_asked_for(report, size):
    with opened(report.as_uri(), size) as seen:
        for key in CHARTS:
            curves = 2 if key == "predict" else len(SETTINGS)  # one rule chooses, in two clusters
            assert seen.points(f"#chart-{key} .plot").count(9) == curves  # evaluated at 0, 5, …, 35 and 36
            assert seen.drawn(f"#chart-{key} .plot") >= curves
        assert seen.page.locator("#chart-accuracy svg.main-svg").first.is_visible()
        width = seen.page.evaluate("document.documentElement.scrollWidth")
        assert width <= size[0], "the page is wider than the screen"
        assert seen.requests == [report.as_uri()]
        seen.assert_quiet(report.as_uri())
