"""What a notebook shows of networks, runs and comparisons, and how far a run is."""

import io
import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from matplotlib.figure import Figure

import gossamer as gm
from gossamer.report.network_picture import LATE
from gossamer.train import progress as progress_module
from gossamer.train.notebook_html import bar, sparkline, table

SHORT = {"model": "linear", "epochs": 2, "lr": 0.1, "eval_every": 6}


@pytest.fixture(scope="module")
def result():
    return gm.simulate("digits", gm.network("clusters:2,3", delay=3), "pc-asgd", **SHORT)


@pytest.fixture(scope="module")
def comparison():
    net = gm.network("clusters:2,3", delay=3)
    return gm.compare(["d-asgd", "pc-asgd/theta=0.5"], "digits", net, seeds=2, **SHORT)


def parsed(html: str) -> ElementTree.Element:
    """What is well-formed XML is read by every browser; what runs code has no place in it."""
    assert not re.search(r"<script|javascript:|\son\w+=", html)
    return ElementTree.fromstring(html)


def texts(root: ElementTree.Element, tag: str) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter(tag)]


# Networks.


def test_a_network_draws_its_agents_clusters_and_links():
    root = parsed(gm.network("clusters:2,3", delay=20, loss=0.1)._repr_html_())
    lines = list(root.iter("line"))
    late = [line for line in lines if "stroke-dasharray" in line.attrib]
    assert len(lines) == 10 and len(late) == 6 and {line.get("stroke") for line in late} == {LATE}
    assert texts(root, "text") == ["0", "1", "2", "3", "4"]
    assert len(list(root.iter("circle"))) == 5 + 2  # agents, and a disc for each cluster
    assert "".join(root.itertext()).endswith(
        "clusters:2,3: 5 agents, clusters 2+3; 4 reliable links; 6 late links, delay 20 steps, 10% lost"
    )


def test_every_kind_of_network_can_be_shown():
    for spec in ("ring:8", "torus:3x4", "star:6", "complete:2", "random:20,p=0.3,seed=1", "complete:100"):
        root = parsed(gm.network(spec, delay="uniform:1,5")._repr_html_())
        assert spec.split(",")[0] in "".join(root.itertext())
    assert not list(root.iter("line"))  # 4950 of them would be a blot


def test_names_are_escaped(tmp_path):
    path = tmp_path / "<b>&.json"
    path.write_text('{"agents": 2, "links": [[0, 1]]}')
    html = gm.network(f"file:{path}", delay=1)._repr_html_()
    assert "<b>" not in html and "&lt;b&gt;&amp;.json" in html
    assert "<td" in table(["a<"], [["<i>"]]) and "<i>" not in table(["a<"], [["<i>"]])


# Runs and comparisons.


def test_a_result_shows_what_its_summary_says(result):
    root, summary = parsed(result._repr_html_()), result.summary
    found = dict(zip(texts(root, "th"), texts(root, "td"), strict=True))
    assert found["accuracy"] == f"{100 * summary['accuracy_mean']:.1f} ± {100 * summary['accuracy_std']:.1f} %"
    assert (found["algorithm"], found["network"], found["delay"]) == ("pc-asgd", "clusters:2,3, 5 agents", "3")
    assert (found["spread"], found["status"]) == (f"{summary['consensus_distance']:.3f}", "finished")
    assert (
        found["predicts"] == f"{100 * summary['predict_fraction']:.0f} %"
        and found["sent"] == f"{summary['bytes_sent'] / 1e6:.1f} MB"
    )
    points = next(root.iter("polyline")).get("points").split()
    assert len(points) == len(result.history)
    assert isinstance(result, gm.Result) and result.network.num_agents == 5


def test_a_result_is_plotted(result):
    figure = result.plot()
    assert isinstance(figure, Figure)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [
        *("Test accuracy (%)", "Test loss", "Distance from average model", "Share of predicting (%)"),
    ]
    drawn = figure.axes[0].get_lines()[0].get_ydata()
    assert drawn[-1] == pytest.approx(100 * result.summary["accuracy_mean"])
    picture = figure._repr_png_()
    assert picture.startswith(b"\x89PNG") and len(picture) < 100_000
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_a_run_without_a_choice_has_three_pictures():
    assert len(gm.simulate("digits", "ring:4", "sync", **SHORT).plot().axes) == 3


def test_a_comparison_is_a_table_the_best_first(comparison):
    root = parsed(comparison._repr_html_())
    rows = [texts(row, "td") for row in root.iter("tr")][1:]
    means = {row["label"].replace("/", " "): 100 * row["accuracy_mean"] for row in comparison.rows}
    assert [row[0] for row in rows] == sorted(means, key=means.get, reverse=True)
    assert all(row[2].startswith(f"{means[row[0]]:.1f} ± ") for row in rows)
    assert len(list(root.iter("polyline"))) == 2 and "digits with linear" in "".join(root.itertext())
    assert [line.split("  ")[0] for line in repr(comparison).splitlines()[2:]] == [row[0] for row in rows]
    assert len(comparison.plot().axes) == 4 and len(comparison.runs) == 4


def test_a_comparison_is_the_command_lines(comparison, command):
    found = command.well(
        *("compare", "--algorithms", "d-asgd,pc-asgd/theta=0.5", "--network", "clusters:2,3", "--delay", 3),
        *("--seeds", 2, "--model", "linear", "--epochs", 2, "--lr", 0.1, "--eval-every", 6, "--no-plots", "--json"),
    ).document["results"]
    for ours, theirs in zip(comparison.rows, found, strict=True):
        assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}


def test_a_comparison_keeps_its_runs_in_a_new_folder(folder):
    gm.compare("d-asgd, dm-asgd", "digits", "ring:4", delay=2, out="kept", **SHORT)
    kept = sorted(path.name for path in (folder / "kept/runs").iterdir())
    assert kept == ["d-asgd-seed0", "dm-asgd-seed0"]
    with pytest.raises(gm.UserError, match="'kept' already exists"):
        gm.compare("d-asgd", "digits", "ring:4", delay=2, out="kept", **SHORT)
    with pytest.raises(gm.UserError, match="'delay' belongs to the given network"):
        gm.compare("d-asgd", "digits", gm.network("ring:4", 2), delay=3, **SHORT)
    with pytest.raises(gm.UserError, match="unknown algorithm 'd-asdg'"):
        gm.compare(["d-asdg"], "digits", "ring:4", **SHORT)
    with pytest.raises(gm.UserError, match="seeds must be 1 or more"):
        gm.compare("d-asgd", seeds=0)


def test_a_small_curve_keeps_to_its_box_whatever_it_is_given():
    for values in ([], [1.0], [float("nan"), 1.0, 2.0], [3.0, 3.0], [float("inf"), 1.0, float("nan"), 5.0]):
        for line in parsed(sparkline(values, "x")).iter("polyline"):
            places = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
            assert all(0 <= x <= 120 and 0 <= y <= 24 for x, y in places)
    assert [rect.get("width") for rect in parsed(bar(0.25)).iter("rect")] == ["240", "60"]


# How far a run is.


class Display:
    """Stands for a kernel's display: what it was given, and every update."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, html) -> None:
        self.shown.append(html.data)


@pytest.fixture
def kernel(monkeypatch):
    import IPython.display

    display = Display()
    monkeypatch.setattr(progress_module, "in_notebook", lambda: True)
    monkeypatch.setattr(IPython.display, "display", lambda *_, **__: display)
    return display


def test_in_a_notebook_a_widget_shows_bar_time_left_accuracy_and_a_growing_line(kernel, monkeypatch):
    monkeypatch.setattr(progress_module, "PAUSE", 0.0)
    result = gm.simulate("digits", "ring:4", "d-asgd", delay=2, **SHORT)
    roots = [parsed(html) for html in kernel.shown]
    widths = [float(list(root.iter("rect"))[1].get("width")) for root in roots]
    assert widths == sorted(widths) and (widths[0], widths[-1]) == (0, 240)
    assert any(" s left" in html for html in kernel.shown) and " s left" not in kernel.shown[-1]
    steps, last = result.summary["iterations"], "".join(roots[-1].itertext())
    assert last.startswith(
        f"d-asgd, step {steps} of {steps}, accuracy {100 * result.summary['accuracy_mean']:.1f} %, loss"
    )
    lengths = [len(next(root.iter("polyline")).get("points").split()) for root in roots if list(root.iter("polyline"))]
    assert lengths == sorted(lengths) and lengths[-1] == len(result.history) - 1


def test_the_widget_is_drawn_at_most_four_times_a_second_and_once_at_the_end(kernel, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])

    def a_tenth(step: int, row: object) -> None:
        now[0] += 0.1

    gm.simulate("digits", "ring:4", "d-asgd", delay=2, on_step=a_tenth, **SHORT)
    assert len(kernel.shown) <= 2 + now[0] / 0.25 and len(kernel.shown) > now[0] / 0.5


def test_of_several_runs_the_widget_says_which(kernel):
    gm.compare("d-asgd,dm-asgd", "digits", "ring:4", delay=2, **SHORT)
    assert kernel.shown[-1].count("run 2 of 2: dm-asgd, seed 0, step") == 1


def test_a_run_that_breaks_off_leaves_how_far_it_was(kernel):
    def stop(step: int, row: object) -> None:
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gm.simulate("digits", "ring:4", "d-asgd", delay=2, on_step=stop, **SHORT)
    assert "step 4 of" in kernel.shown[-1] and "left" not in kernel.shown[-1]


def test_elsewhere_nothing_is_shown_unless_asked_for(capsys):
    gm.simulate("digits", "ring:4", "d-asgd", delay=2, **SHORT)
    gm.simulate("digits", "ring:4", "d-asgd", delay=2, progress=True, **SHORT)  # a pipe takes no bar
    assert capsys.readouterr() == ("", "")
    with pytest.raises(gm.UserError, match="progress must be True, False or 'auto', got 'yes'"):
        gm.simulate("digits", "ring:4", "d-asgd", delay=2, progress="yes", **SHORT)


def test_on_a_terminal_a_bar_is_shown_when_asked_for(monkeypatch):
    from rich.console import Console

    from gossamer.train import progress

    terminal = Console(force_terminal=True, width=100, record=True, file=io.StringIO())
    monkeypatch.setattr(progress, "err", terminal)
    gm.compare("d-asgd,dm-asgd", "digits", "ring:4", delay=2, progress=True, **SHORT)
    text = terminal.export_text()
    assert "all runs" in text and "dm-asgd, seed 0" in text
