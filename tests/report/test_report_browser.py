"""The page of `gossamer report` in a real browser: what a reader sees and can do with it."""

import json

import pytest

from browser import LAPTOP, PHONE, opened
from gossamer.report.html_page import make_page
from gossamer.report.page_model import make_model
from gossamer.report.read_runs import read_run, read_runs
from runs import begin

CHARTS = ("accuracy", "loss", "consensus", "predict", "message_age", "bytes_sent")
SETTINGS = ("d-asgd", "pc-asgd")
MISSING = "–"  # noqa: RUF001  as the page writes it
# Evaluated at 0, 5, …, 35 and 36; nothing has arrived at 0, and until 5, the delay, there is no choice.
POINTS = {"message_age": 8, "predict": 7}


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
            curves = 2  # settings, or the clusters of the one setting whose rule chooses
            assert seen.points(f"#chart-{key} .plot").count(POINTS.get(key, 9)) == curves
            assert seen.drawn(f"#chart-{key} .plot") >= curves
        assert seen.page.locator("#chart-accuracy svg.main-svg").first.is_visible()
        width = seen.page.evaluate("document.documentElement.scrollWidth")
        assert width <= size[0], "the page is wider than the screen"
        assert seen.requests == [report.as_uri()]
        seen.assert_quiet(report.as_uri())


def test_the_axis_switch_moves_every_chart(report):
    with opened(report.as_uri()) as seen:
        ends = {}
        zoom = "Plotly.relayout(document.querySelector('#chart-loss .plot'), {'xaxis.range': [10, 20]})"
        seen.page.evaluate(zoom)
        for axis in ("iterations", "epochs", "seconds", "megabytes"):
            seen.page.click(f'#axis button[data-key="{axis}"]')
            assert seen.page.get_attribute(f'#axis button[data-key="{axis}"]', "aria-checked") == "true"
            ends[axis] = seen.page.eval_on_selector("#chart-loss .plot", "plot => Math.max(...plot.data.at(-1).x)")
            title = seen.page.eval_on_selector("#chart-loss .plot", "plot => plot.layout.xaxis.title.text")
            assert title.lower().startswith(axis[:5])
            shown = seen.page.eval_on_selector("#chart-loss .plot", "plot => plot.layout.xaxis.range")
            assert (shown == [10, 20]) == (axis == "iterations")  # what was zoomed to is a matter of its axis
        assert (ends["iterations"], ends["epochs"]) == (36, 3) and ends["seconds"] > 0
        sent = seen.page.evaluate("gossamerPage.state.model.runs.find(run => run.setting === 'pc-asgd').sent")
        assert ends["megabytes"] == pytest.approx(sent)
        seen.page.focus('#axis button[data-key="megabytes"]')
        seen.page.keyboard.press("ArrowLeft")
        assert seen.page.get_attribute('#axis button[data-key="seconds"]', "aria-checked") == "true"
        seen.assert_quiet(report.as_uri())


def test_the_table_sorts_by_any_column_both_ways(report):
    with opened(report.as_uri()) as seen:
        keys = [head.get_attribute("data-key") for head in seen.page.query_selector_all("#runs thead th")]
        for place, key in enumerate(keys):
            orders = []
            for _ in range(2):
                seen.page.click(f'#runs th[data-key="{key}"] button')
                orders.append(seen.page.get_attribute(f'#runs th[data-key="{key}"]', "aria-sort"))
                cells = seen.page.locator(f"#runs tbody tr > :nth-child({place + 1})").all_inner_texts()
                known = [_value(cell) for cell in cells if cell != MISSING]
                assert known == sorted(known, reverse=orders[-1] == "descending"), key
                assert cells[len(known) :] == [MISSING] * (len(cells) - len(known))  # what is missing stays at the end
            assert sorted(orders) == ["ascending", "descending"]
        seen.assert_quiet(report.as_uri())


def _value(cell):
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        return cell


def test_a_setting_can_be_hidden_in_all_charts(report):
    with opened(report.as_uri()) as seen:
        before = len(seen.points("#chart-accuracy .plot"))
        seen.page.click("#legend button >> nth=0")
        assert seen.page.get_attribute("#legend button >> nth=0", "aria-pressed") == "false"
        assert len(seen.points("#chart-accuracy .plot")) == before // 2
        seen.page.click("#legend button >> nth=0")
        assert len(seen.points("#chart-accuracy .plot")) == before


def test_one_looks_inside_a_run_and_at_an_agent(report):
    with opened(report.as_uri()) as seen:
        seen.page.click("#runs tbody button >> text=pc-asgd-1")
        assert seen.page.locator("#agent-title").inner_text() == "Agent 0 of pc-asgd-1"
        assert seen.points("#ages") == [8]  # a row for each receiver
        kinds = seen.page.eval_on_selector("#network", "plot => plot.data.map(trace => trace.name)")
        assert {"reliable links", "late links", "agents"} <= set(kinds)
        # Press agent 4 in the drawing.
        place = seen.page.evaluate(
            """() => { const plot = document.getElementById('network'), {xaxis, yaxis} = plot._fullLayout;
            const nodes = plot.data.find(trace => trace.name === 'agents'); plot.scrollIntoView({block: 'center'});
            const box = plot.getBoundingClientRect();
            const [x, y] = [xaxis._offset + xaxis.d2p(nodes.x[4]), yaxis._offset + yaxis.d2p(nodes.y[4])];
            return [box.left + x, box.top + y]; }"""
        )
        seen.page.mouse.move(*place)
        seen.page.mouse.click(*place)
        seen.until("document.getElementById('agent-title').textContent.startsWith('Agent 4')")
        assert (
            seen.page.locator("#agent-about").inner_text().startswith("In cluster 1. Hears reliably from 3, 5, 6, 7;")
        )
        model = seen.page.evaluate("gossamerPage.state.model.runs.find(run => run.name === 'pc-asgd-1').agents")
        drawn = seen.page.eval_on_selector("#agent-accuracy .plot", "plot => plot.data.at(-1).y")
        assert drawn == model["accuracy"][4]
        seen.assert_quiet(report.as_uri())


def test_the_configuration_marks_what_differs_and_the_command_is_copied(report):
    with opened(report.as_uri()) as seen:
        seen.page.check("#only-differences")
        marked = seen.page.locator("#configuration tbody tr.differs th").all_inner_texts()
        assert "≠ algorithm" in marked and all(text.startswith("≠ ") for text in marked)
        assert seen.page.locator("#configuration tbody tr").count() == len(marked)
        seen.page.uncheck("#only-differences")
        assert seen.page.locator("#configuration tbody th >> text=weight_decay").count() == 1
        # The button says so for a second and a half only, which a look at it may miss: the page itself takes note.
        seen.page.evaluate(
            """() => { window.said = []; const button = document.querySelector('#commands .copy');
            new MutationObserver(() => said.push(button.textContent)).observe(button, {childList: true}); }"""
        )
        seen.page.click("#commands .copy >> nth=0")
        seen.until("said.includes('Copied')")
        assert seen.page.locator("#commands pre >> nth=0").inner_text().startswith("gossamer train --algorithm d-asgd")


def test_a_grown_model_keeps_what_the_reader_has_chosen(runs, report):
    record = read_run(runs / "pc-asgd-0")
    grown = make_model([record])
    record.rows[:] = record.rows[:4]
    page = runs.parent / "live.html"
    page.write_text(make_page(make_model([record])), encoding="utf-8")
    with opened(page.as_uri()) as seen:
        seen.page.click('#axis button[data-key="epochs"]')
        seen.page.click('#runs th[data-key="accuracy"] button')
        seen.page.select_option("#agent", "3")
        seen.page.evaluate("Plotly.relayout(document.querySelector('#chart-loss .plot'), {'xaxis.range': [0.5, 2]})")
        pressed = "#axis button, #runs thead button, #legend button, #ages-switch button, #run option, #agent option"
        seen.page.evaluate("places => { window.before = [...document.querySelectorAll(places)]; }", pressed)
        seen.page.evaluate("text => gossamerPage.show(JSON.parse(text))", json.dumps(grown))
        assert seen.page.evaluate("before.length > 20 && before.every(element => element.isConnected)")  # for clicks
        assert 9 in seen.points("#chart-loss .plot")
        assert seen.page.get_attribute('#axis button[data-key="epochs"]', "aria-checked") == "true"
        assert seen.page.get_attribute('#runs th[data-key="accuracy"]', "aria-sort") == "descending"
        assert seen.page.input_value("#agent") == "3"
        assert seen.page.eval_on_selector("#chart-loss .plot", "plot => plot.layout.xaxis.range") == [0.5, 2]
        seen.assert_quiet(page.as_uri())


def test_an_older_run_says_why_it_has_no_seconds_and_no_ages(runs, tmp_path):
    record = read_run(runs / "pc-asgd-0")
    for row in record.rows:
        del row["seconds"], row["ages"]
    page = tmp_path / "old.html"
    page.write_text(make_page(make_model([record])), encoding="utf-8")
    with opened(page.as_uri()) as seen:
        button = seen.page.locator('#axis button[data-key="seconds"]')
        assert button.is_disabled() and "without seconds" in button.get_attribute("title")
        assert "train it again" in seen.page.locator("#no-ages").inner_text()
        assert not seen.page.locator("#ages").is_visible()
        assert {"late links", "agents"} <= set(
            seen.page.eval_on_selector("#network", "plot => plot.data.map(trace => trace.name)")
        )
        seen.assert_quiet(page.as_uri())


def test_names_that_are_markup_stay_text(runs, tmp_path):
    model = make_model([read_run(runs / "pc-asgd-0")], ["<img src=x onerror=alert(1)>"])
    evil = "</script><script>document.title = 'gone'</script><b>"
    model["settings"][0]["label"] = model["runs"][0]["name"] = evil
    for chart in model["charts"]:
        for curve in chart["curves"]:
            curve["label"] = evil
    page = tmp_path / "evil.html"
    page.write_text(make_page(model), encoding="utf-8")
    with opened(page.as_uri()) as seen:
        assert seen.page.locator("#legend button").inner_text() == evil
        assert seen.page.title() != "gone" and seen.page.locator("#warnings img").count() == 0
        seen.assert_quiet(page.as_uri())
