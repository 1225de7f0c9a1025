"""The atlas: every algorithm against every delay, best first."""

import pytest

from gossamer.algorithms import algorithm_names
from gossamer.paper.atlas import ATLAS, charts_of
from gossamer.paper.cells import SCALES, key_of
from gossamer.paper.findings import Section
from gossamer.paper.store import Outcome
from gossamer.paper.summary_page import to_summary
from reproducing import cells_of, record

QUICK = SCALES["quick"]
PC = "pc-asgd/theta=pv"
LOST = {"sync": 0.0, "dm-asgd": 0.1, "dsgt": 0.2, "c-asgd": 0.5, "d-asgd": 3.0, PC: 4.0}  # points at tau 1


def section_of(lost=None, delays=range(101), parts=("iid", "dirichlet:0.3")):
    """Rows that lose so many points times the delay; two seeds 0.2 apart, at rate 0.3, those that predict without m."""
    lost = LOST if lost is None else lost
    cells, outcomes = cells_of("delay-atlas", "quick", ["tuned"]), {}
    for cell in cells:
        delay, part = int(cell.column.split()[1].rstrip(",")), cell.column.split(", ")[1]
        if cell.row in lost and delay in delays and part in parts:
            settled = cell.at(0.3, 0.0 if cell.row == PC else 0.9)
            height = 0.8 - lost[cell.row] * delay / 1e3 - 0.1 * (part != "iid")
            runs = [record(settled, seed, height + 0.001 * (2 * seed - 1)) for seed in range(2)]
            outcomes[cell.row, cell.column] = Outcome(settled, runs)
    return Section(QUICK, "tuned", cells, outcomes)


def test_rows_are_ordered_by_their_mean_and_delays_by_size():
    charts = charts_of(section_of())
    assert [chart.partition for chart in charts] == ["iid", "dirichlet:0.3"]
    for chart in charts:
        assert list(chart.outcomes) == list(LOST)
        assert chart.delays == [0, 1, 2, 5, 10, 20, 40, 60, 100]
        assert chart.lost("d-asgd", 20) == pytest.approx(6.0) and chart.lost("sgp", 20) is None


def test_a_row_of_which_little_was_run_stands_below_those_that_are_whole():
    """Its mean would be that of the shortest delays, which says nothing."""
    whole, part = section_of(), section_of({"dga": -1.0}, delays=(0, 1))
    both = Section(QUICK, "tuned", whole.cells, whole.outcomes | part.outcomes)
    assert list(charts_of(both)[0].outcomes) == [*LOST, "dga"]


def test_the_tables_have_seeds_rates_and_what_is_missing():
    lines = ATLAS.tables(section_of(delays=(0, 20), parts=("iid",)))
    lines = lines[lines.index("**iid**, accuracy:") :]
    accuracies = lines[2 : 4 + len(LOST)]
    assert accuracies[0] == "|  | tau 0 | tau 1 | tau 2 | tau 5 | tau 10 | tau 20 | tau 40 | tau 60 | tau 100 |"
    assert accuracies[6].startswith("| d-asgd | 80.0 ± 0.1 (2) | not run |")
    assert accuracies[6].split(" | ")[6] == "74.0 ± 0.1 (2)"
    rates = [line for line in lines[4 + len(LOST) :] if line.startswith("| ")]
    assert rates[1].startswith("| sync | 0.3 | not run |") and rates[6].startswith(
        "| pc-asgd/theta=pv | 0.3, m 0 | not run |"
    )
    assert not any("dirichlet" in line for line in lines)
    (missing,) = [line for line in lines if line.startswith("Not run with these data: ")]
    named = missing.partition(": ")[2].rstrip(".").split(", ")
    assert sorted([*named, *LOST]) == sorted({cell.row for cell in section_of().cells})


def test_only_seeds_that_both_have_are_compared():
    section = section_of()
    column = next(cell.column for cell in section.cells if cell.column.startswith("tau 20, iid"))
    ours = section.outcomes["dm-asgd", column]
    alone = Outcome(ours.cell, [run for run in ours.records if run["seed"] == 0])  # its accuracy is 0.1 below the mean
    some = Section(QUICK, "tuned", section.cells, section.outcomes | {("dm-asgd", column): alone})
    assert charts_of(some)[0].lost("dm-asgd", 20) == pytest.approx(charts_of(section)[0].lost("dm-asgd", 20))
    later = Outcome(ours.cell, [{**run, "seed": run["seed"] + 7} for run in ours.records])
    none = Section(QUICK, "tuned", section.cells, section.outcomes | {("dm-asgd", column): later})
    assert charts_of(none)[0].lost("dm-asgd", 20) is None


def test_the_short_table_has_the_nearest_and_the_last_of_those_that_do_not_wait():
    lines = ATLAS.summary_table(section_of(LOST | {"cdmsgd": 0.01}, delays=(5, 20, 100)))
    assert lines[0] == "| points above the synchronous run | nearest | then | then | last |"
    assert [line.split("|")[1].strip() for line in lines[2:]] == [
        f"{part}, tau {delay}" for part in ("iid", "dirichlet:0.3") for delay in (5, 20, 100)
    ]
    assert lines[3] == "| iid, tau 20 | dm-asgd -0.2 | dsgt -0.4 | c-asgd -1.0 | pc-asgd/theta=pv -8.0 |"


def test_every_algorithm_has_one_row_and_who_waits_one_run_for_all_delays():
    cells = cells_of("delay-atlas", "quick", ["tuned"])
    rows = {cell.row for cell in cells}
    assert sorted(row.split("/")[0] for row in rows) == sorted([*algorithm_names(), "pc-asgd"])  # auto and pv
    keys = {row: {cell.key for cell in cells if cell.row == row} for row in rows}
    assert len(keys["sync"]) == len(keys["cdmsgd"]) == 2  # one for each way to deal out the data
    assert len(keys["d-asgd"]) == 2 * 9
    trials = {key_of(trial) for cell in cells if cell.row == "cdmsgd" for trial in cell.tune_on}
    assert len(trials) == 1


def test_page_picture_and_summary_show_it():
    section = section_of()
    page = ATLAS.page([section])
    assert "\n".join(ATLAS.summary_table(section)) in page
    figure = ATLAS.draw([section])
    assert [[text.get_text() for text in axes.get_yticklabels()] for axes in figure.axes] == [list(LOST)] * 2
    numbers = [text.get_text() for text in figure.axes[0].texts]
    assert len(numbers) == len(LOST) * 9 and numbers.count("74.0") == 1  # d-asgd at tau 20
    summary = to_summary({"delay-atlas": [section]}, picture=False)
    assert "\n".join(ATLAS.summary_table(section)) in summary
    assert "Not run: " in summary and "sdm-asgd" in summary.partition("Not run: ")[2]
