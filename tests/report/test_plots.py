import math
import sys
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

import gossamer as gm
from gossamer.errors import UserError
from gossamer.report.network_picture import lay_out
from gossamer.report.plots import draw_curves, draw_network, draw_overview, draw_ranking, write_plots
from gossamer.report.style import COLOURS, DASHES, MARKERS
from gossamer.run.metric_rows import LabelledRun

NAN, INF = math.nan, math.inf


def row(step: int, **values: Any) -> dict[str, Any]:
    plain = {"accuracy": [0.9, 0.8], "loss": [0.5, 0.7], "consensus": [0.1, 0.3], "predict": None}
    return {"step": step, **plain, **values}


def run(label: str, rows: list[dict[str, Any]], *, seed: int = 0, status: str = "finished") -> LabelledRun:
    summary = {"task": "digits", "model": "mlp", "network": "paper-1", "delay": 20, "status": status}
    return LabelledRun(label, seed, summary, rows)


def rising(label: str, seed: int, top: float) -> LabelledRun:
    """A plausible run that rises to an accuracy."""
    return run(label, [row(t, accuracy=[top * (1 - 0.5**t)] * 2) for t in range(9)], seed=seed)


def line_of(figure: Figure, label: str) -> Any:
    return next(line for line in figure.axes[0].lines if str(line.get_label()).startswith(label))


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text().replace("\n", " ") for text in figure.legends[0].get_texts()]


def links_of(figure: Figure) -> tuple[int, int]:
    """The numbers of solid and of dashed links."""
    solid = dashed = 0
    for lines in figure.axes[0].collections:
        if isinstance(lines, LineCollection):
            (pattern,) = lines.get_linestyle()
            if pattern[1]:
                dashed += len(lines.get_segments())
            else:
                solid += len(lines.get_segments())
    return solid, dashed


def test_the_line_is_the_mean_over_agents_and_seeds():
    first = run("A", [row(0, accuracy=[0.1, 0.3]), row(10, accuracy=[0.6, 0.8])], seed=0)
    second = run("A", [row(0, accuracy=[0.2, 0.2]), row(10, accuracy=[1.0, 0.8])], seed=1)
    line = line_of(draw_curves([first, second], "accuracy"), "A")
    assert list(line.get_xdata()) == [0, 10]
    assert line.get_ydata() == pytest.approx([20.0, 80.0])  # ((.1+.3)/2 + (.2+.2)/2)/2, ((.6+.8)/2 + (1+.8)/2)/2


def test_the_band_is_the_range_of_the_seeds():
    runs = [run("A", [row(0, accuracy=[a, a]), row(5, accuracy=[a, a])], seed=i) for i, a in enumerate((0.5, 0.6, 0.9))]
    (band,) = draw_curves(runs, "accuracy").axes[0].collections
    assert sorted(set(np.round(band.get_paths()[0].vertices[:, 1], 6))) == [50.0, 90.0]


@pytest.mark.parametrize("quantity, expected", [("loss", 0.6), ("consensus", 0.2)])
def test_loss_and_consensus_are_means_on_a_log_axis(quantity, expected):
    figure = draw_curves([run("A", [row(0), row(1)])], quantity)
    assert figure.axes[0].get_yscale() == "log"
    assert line_of(figure, "A").get_ydata() == pytest.approx([expected, expected])


def test_predict_skips_agents_without_a_choice_and_runs_without_any():
    choosing = run("PC", [row(0), row(1, predict=[0.25, None]), row(2, predict=[0.5, 1.0])])
    figure = draw_curves([run("sync", [row(0), row(1)]), choosing], "predict")
    line = line_of(figure, "PC")
    assert list(line.get_xdata()) == [1, 2] and line.get_ydata() == pytest.approx([25.0, 75.0])
    assert legend_of(figure) == ["PC"]
    # It looks as in the other pictures, where it comes second.
    assert (
        line.get_color()
        == COLOURS[1]
        == line_of(draw_curves([run("sync", [row(0)]), choosing], "loss"), "PC").get_color()
    )


@pytest.mark.parametrize("bad", [[NAN, 1.0], [INF, 1.0], [None, 1.0], [None, None], [], None])
@pytest.mark.parametrize("quantity", ["loss", "consensus", "accuracy", "predict"])
def test_values_that_are_not_finite_leave_a_gap(bad, quantity):
    good = [0.5, 0.5]
    runs = [run("A", [row(0, **{quantity: good}), row(1, **{quantity: bad}), row(2, **{quantity: good})])]
    figure = draw_curves(runs, quantity)
    if bad == [NAN, 1.0]:
        figure.draw_without_rendering()
    skips_none = quantity == "predict" and bad == [None, 1.0]
    assert list(line_of(figure, "A").get_xdata()) == ([0, 1, 2] if skips_none else [0, 2])


def test_a_zero_has_no_place_on_a_log_axis():
    figure = draw_curves([run("A", [row(0, consensus=[0.0, 0.0]), row(1)])], "consensus")
    assert list(line_of(figure, "A").get_xdata()) == [1]
    nothing = draw_curves([run("A", [row(0, consensus=[0.0]), row(1, consensus=[0.0])])], "consensus")
    assert [text.get_text() for text in nothing.axes[0].texts] == ["no value above zero"]


def test_a_run_that_diverged_ends_with_a_cross_and_is_named():
    lost = run("A", [row(0), row(1), row(2, loss=[NAN, NAN])], seed=0, status="the loss of agent 0 is not finite")
    kept = run("A", [row(step) for step in range(5)], seed=1)
    figure = draw_curves([lost, kept], "loss")
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "X"]
    assert [list(cross.get_xdata()) for cross in crosses] == [[1]]
    assert legend_of(figure) == ["A (1 of 2 diverged)"]
    assert list(line_of(figure, "A").get_xdata()) == [0, 1, 2, 3, 4]


def test_labels_keep_their_order_and_no_two_look_alike():
    labels = [f"label {index}" for index in (3, 1, 2, 0, 5, 4, 7, 6, 9, 8, 11, 10)]
    figure = draw_curves([rising(label, seed, 0.9) for seed in (0, 1) for label in labels], "accuracy")
    assert legend_of(figure) == labels
    lines = [line_of(figure, label) for label in labels]
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == len(labels)
    assert math.lcm(len(COLOURS), len(DASHES), len(MARKERS)) == 280


def test_a_bad_algorithm_does_not_squash_the_accuracy_axis():
    good = [rising(label, seed, top) for label, top in (("A", 0.94), ("B", 0.93), ("C", 0.95)) for seed in (0, 1)]
    figure = draw_curves([*good, rising("D-ASGD", 0, 0.12)], "accuracy")
    bottom, top = figure.axes[0].get_ylim()
    assert bottom >= 45 and 95 < top <= 100.5
    assert legend_of(figure) == ["A", "B", "C", "D-ASGD (ends at 12 %)"]


def test_an_exploding_run_does_not_squash_a_log_axis():
    calm = [run(f"calm {i}", [row(t) for t in range(20)]) for i in range(3)]
    wild = run("wild", [row(t, loss=[1e30 if t == 7 else 0.6] * 2) for t in range(20)])
    assert draw_curves([*calm, wild], "loss").axes[0].get_ylim()[1] < 10


@pytest.mark.parametrize(
    "spec, solid, late",
    [
        ("paper-1", 13, 15),  # 3 + 10 inside the clusters, 3 * 5 between them
        ("paper-2", 4, 6),
        ("paper-3", 46, 144),
        ("ring:8", 0, 8),
        ("torus:4x4", 0, 32),
        ("torus:2x3", 0, 9),
        ("star:6", 0, 5),
        ("path:2", 0, 1),
        ("complete:1", 0, 0),
    ],
)
def test_late_links_are_dashed_and_counted(spec, solid, late):
    figure = draw_network(gm.network(spec, delay=20))
    figure.draw_without_rendering()
    assert links_of(figure) == (solid, late)
    names = legend_of(figure) if figure.legends else []
    assert (f"late link, delay 20 steps ({late})" in names) == (late > 0)
    assert (f"reliable link ({solid})" in names) == (solid > 0)


def test_links_that_are_never_late_are_solid():
    assert links_of(draw_network(gm.network("paper-1", delay=0))) == (28, 0)
    lossy = draw_network(gm.network("paper-1", delay=0, loss=0.1))
    assert links_of(lossy) == (13, 15) and "late link, delay 0 steps, 10% lost (15)" in legend_of(lossy)
    delays = [[0, 4, 0], [0, 0, 0], [0, 0, 0]]
    assert links_of(draw_network(gm.network("complete:3", delay=delays))) == (2, 1)


def test_discovered_clusters_do_not_make_a_link_reliable():
    found = gm.network("ring:4", delay=3).with_clusters(((0, 1), (2, 3)))
    assert links_of(draw_network(found)) == (0, 4)


@pytest.mark.parametrize("spec", ["paper-3", "clusters:1,1,4", "clusters:9,2,2,2,2", "torus:2x5", "star:12", "ring:30"])
def test_agents_do_not_overlap_and_stay_inside(spec):
    layout = lay_out(gm.network(spec, delay=1))
    for made in (layout, layout.upright()):
        apart = np.linalg.norm(made.places[:, None] - made.places[None], axis=2)
        assert apart[~np.eye(len(apart), dtype=bool)].min() > 0.65  # a circle has a radius of 0.3
        low, high = made.corners
        assert (made.places > low + 0.3).all() and (made.places < high - 0.3).all()


def test_the_files_are_written_and_the_session_is_left_alone(tmp_path):
    settings, pyplot = mpl.rcParams.copy(), "matplotlib.pyplot" in sys.modules
    network = gm.network("paper-1", delay=2)
    result = gm.simulate("digits", network, "pc-asgd/theta=pv", lr=0.05, epochs=1, seed=0)
    runs = [LabelledRun("PC-ASGD PV", 0, result.summary, result.history)]
    paths = write_plots(tmp_path / "plots", runs, network)
    names = ["accuracy", "loss", "consensus", "predict", "ranking", "network", "overview"]
    assert paths == [tmp_path / "plots" / f"{name}.png" for name in names]
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG") and 8_000 < path.stat().st_size < 300_000
    # The mapping's own comparison would choose a backend, and so load pyplot.
    assert dict.__eq__(mpl.rcParams, settings) and ("matplotlib.pyplot" in sys.modules) == pyplot


def test_predict_is_left_out_when_no_run_has_it(tmp_path):
    network, runs = gm.network("ring:4", delay=1), [rising("sync", 0, 0.9)]
    names = [path.name for path in write_plots(tmp_path, runs, network)]
    assert names == ["accuracy.png", "loss.png", "consensus.png", "ranking.png", "network.png", "overview.png"]
    with pytest.raises(UserError, match="no run has a predict share"):
        draw_curves(runs, "predict")


def test_the_ranking_goes_from_the_worst_at_the_bottom_to_the_best_with_every_seed():
    runs = [rising("good", 0, 0.9), rising("bad", 0, 0.2), rising("good", 1, 0.7), rising("middle", 0, 0.5)]
    axes = draw_ranking(runs).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["bad", "middle", "good"]
    seeds = [sorted(line.get_xdata()) for line in axes.lines if line.get_marker() == "o"]
    ends = {run.label: [] for run in runs}
    for one in runs:
        ends[one.label].append(100 * sum(one.history[-1]["accuracy"]) / len(one.history[-1]["accuracy"]))
    assert seeds == [pytest.approx(sorted(ends[label])) for label in ("bad", "middle", "good")]
    means = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "|"]
    assert means == [pytest.approx(sum(ends[label]) / len(ends[label])) for label in ("bad", "middle", "good")]


def test_the_overview_has_the_network_and_three_curves():
    runs = [run("PC", [row(0), row(1, predict=[0.5, 0.5])])]
    titles = [axes.get_title(loc="left") for axes in draw_overview(runs, gm.network("paper-1", delay=20)).axes]
    assert titles == [
        "paper-1: 8 agents\nclusters 3+5",
        "Test accuracy (%)",
        "Distance from average model",
        "Share of predicting (%)",
    ]


def test_broken_input_is_told(tmp_path):
    network = gm.network("paper-1", delay=20)
    for draw in (
        lambda: draw_curves([], "accuracy"),
        lambda: draw_overview([], network),
        lambda: write_plots(tmp_path / "none", [], network),
    ):
        with pytest.raises(UserError, match="there are no runs to draw"):
            draw()
    assert not (tmp_path / "none").exists()
    with pytest.raises(UserError, match="run 'A' with seed 3 has an empty history"):
        draw_curves([run("A", [], seed=3)], "accuracy")
    with pytest.raises(UserError, match="did you mean 'accuracy'"):
        draw_curves([rising("A", 0, 0.9)], "acuracy")
