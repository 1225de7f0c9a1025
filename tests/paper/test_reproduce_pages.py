"""The pages of `gossamer reproduce`, from runs that are made up: numbers, what is missing, and the verdicts."""

import re
import statistics

import pytest

from gossamer.paper import RESULTS, toy_page
from gossamer.paper.cells import SCALES, key_of_identity
from gossamer.paper.findings import FAILED, NOT_RUN, ORDER_ONLY, REPRODUCED, leading
from gossamer.paper.paper_result import find_sections
from gossamer.paper.paper_tables import FIRST, RIVALS
from gossamer.paper.store import USUAL_SPREAD, Outcome, Store, read_records
from gossamer.paper.summary_page import write_pages
from gossamer.paper.toy import run_toy
from pages import ROOT
from reproducing import fill, record, section_of, sections_of

QUICK = SCALES["quick"]
# The paper's rows of Table 4 as it prints them.
PRINTED = {"PC-ASGD-PV": 0.873, "D-ASGD": 0.840, "theta uniform": 0.852}
PRINTED |= {"theta 0.3": 0.863, "theta 0.5": 0.850, "theta 0.7": 0.845}
PRINTED |= {"theta Bernoulli 0.3": 0.856, "theta Bernoulli 0.5": 0.850, "theta Bernoulli 0.7": 0.841}


def table_4(folder, accuracies, seeds=3, spread=0.002, scale="quick"):
    store = Store(folder)
    cells = RESULTS["table-4"].cells_of(SCALES[scale], ["paper"])
    fill(store, cells, accuracies, seeds, spread, scale=scale)
    return store


def verdict_of(name, store, protocol="paper", scale=QUICK):
    return RESULTS[name].verdict(section_of(name, store, protocol, scale))


def summary_of(store, folder):
    write_pages([], find_sections(RESULTS.values(), store), folder)
    return (folder / "README.md").read_text()


def test_the_papers_own_numbers_hold(tmp_path):
    verdict = verdict_of("table-4", table_4(tmp_path, PRINTED))
    assert verdict.word == REPRODUCED and "8 comparisons: 8 reproduced, 0 order only, 0 failed." in verdict.sentence


def test_the_same_order_with_other_differences_holds_in_order_only(tmp_path):
    stretched = {row: 0.873 - 4 * (0.873 - value) for row, value in PRINTED.items()}
    verdict = verdict_of("table-4", table_4(tmp_path, stretched))
    assert verdict.word == ORDER_ONLY and "0 reproduced, 8 order only" in verdict.sentence


def test_another_order_does_not_hold(tmp_path):
    verdict = verdict_of("table-4", table_4(tmp_path, {**PRINTED, "D-ASGD": 0.9}))
    assert verdict.word == FAILED and "7 reproduced, 0 order only, 1 failed." in verdict.sentence
    assert (
        "PC-ASGD-PV over D-ASGD (PreResNet-110, CIFAR-10, 8 agents) is -2.7 ± 0.3 points; the paper has +3.3"
        in verdict.sentence
    )


def test_a_difference_within_one_standard_deviation_does_not_hold(tmp_path):
    verdict = verdict_of("table-4", table_4(tmp_path, PRINTED, spread=0.05))
    assert verdict.word == FAILED and "0 reproduced, 0 order only, 8 failed" in verdict.sentence


def test_where_the_papers_difference_is_not_clear_ours_need_not_be(tmp_path):
    # P-ASGD over D-ASGD, CIFAR-100, 8 agents: +0.3 ± 2.0 in the paper.
    column = "PreResNet-110, CIFAR-100, 8 agents"
    store = Store(tmp_path)
    cells = [cell for cell in RESULTS["table-2"].cells_of(QUICK, ["paper"]) if cell.column == column]
    fill(store, cells, {"P-ASGD": 0.6480, "D-ASGD": 0.6485}, seeds=3, spread=0.002)
    verdict = verdict_of("table-2", store)
    assert (
        verdict.word == REPRODUCED
        and "64 comparisons: 1 reproduced, 0 order only, 0 failed, 63 not run" in verdict.sentence
    )


@pytest.mark.parametrize(
    ("scale", "ceiling", "told"), [("full", 0.6, True), ("full", 0.95, False), ("quick", 0.6, False)]
)
def test_a_protocol_that_falls_short_without_delay_is_told(tmp_path, scale, ceiling, told):
    store = Store(tmp_path)
    cells = [cell for cell in RESULTS["table-2"].cells_of(SCALES[scale], ["paper"]) if cell.column == FIRST]
    fill(store, cells, {"PC-ASGD": 0.55, "D-ASGD": 0.5, "synchronous": ceiling}, seeds=2, spread=0.01, scale=scale)
    sentence = verdict_of("table-2", store, scale=SCALES[scale]).sentence
    assert ("Our delay-free baseline reaches 60.0 %" in sentence) == told == ("87.3 % under delay" in sentence)


def test_nothing_to_compare_is_no_verdict(tmp_path):
    assert verdict_of("table-4", table_4(tmp_path, {"D-ASGD": 0.8})).word == NOT_RUN


def test_one_seed_is_said(tmp_path):
    store = table_4(tmp_path, PRINTED, seeds=1)
    assert "A single seed is given the usual" in verdict_of("table-4", store).sentence
    assert "All cells have one seed." in page_of("table-4", store, tmp_path)


def page_of(name, store, folder):
    RESULTS[name].write(sections_of(name, store), folder)
    return (folder / f"{name}.md").read_text()


def test_a_page_has_mean_standard_deviation_seeds_and_the_papers_number(tmp_path):
    page = page_of("table-4", table_4(tmp_path, PRINTED), tmp_path)
    assert "| PC-ASGD-PV | 87.3 | 87.3 ± 0.2 (3) |" in page
    assert "gossamer reproduce table-4 --scale quick --protocol paper --seeds 3" in page
    assert "Made on: CPU made up, float32, gossamer 0.0, torch 0.0." in page and "(table-4.png)" in page


def test_the_usual_spread_is_that_of_the_stored_runs():
    """The median over places with three seeds and equal data; it was 0.56 over 123 of them."""
    places: dict[str, list[float]] = {}
    for run in read_records(ROOT / "docs/results/data/quick.jsonl"):
        if not run["settings"].get("validation") and run["settings"]["partition"] == "iid":
            places.setdefault(run["key"], []).append(100 * run["accuracy"])
    spreads = [statistics.stdev(values) for values in places.values() if len(values) == 3]
    assert len(spreads) >= 100 and abs(statistics.median(spreads) - USUAL_SPREAD) < 0.2


@pytest.mark.parametrize(("lead", "word"), [(0.002, FAILED), (0.008, FAILED), (0.009, ORDER_ONLY), (0.023, REPRODUCED)])
def test_a_difference_of_single_seeds_must_be_larger_than_what_seeds_make(tmp_path, lead, word):
    """Two runs of spread 0.6 differ by 0.85; the paper has 2.3 points."""
    verdict = verdict_of("table-4", table_4(tmp_path, {"PC-ASGD-PV": 0.8 + lead, "theta 0.5": 0.8}, seeds=1))
    assert verdict.word == word and "standard deviation of 0.6 points" in verdict.sentence


def test_a_page_says_what_was_not_run_and_where_it_was(tmp_path):
    store = table_4(tmp_path, {"D-ASGD": 0.8})
    fill(store, RESULTS["table-4"].cells_of(SCALES["smoke"], ["paper"]), {"theta 0.3": 0.91}, scale="smoke")
    page = page_of("table-4", store, tmp_path)
    assert "| theta 0.3 | 86.3 | not run (smoke: 91.0 (1)) |" in page and "| theta 0.5 | 85.0 | not run |" in page
    assert "## Scale smoke" not in page


def test_a_page_of_nothing_says_so(tmp_path):
    page = page_of("table-4", Store(tmp_path), tmp_path)
    assert "Nothing has been run yet." in page and not (tmp_path / "table-4.png").exists()


def as_it_was(run):
    """The run as it was stored before its rule changed."""
    identity = {name: value for name, value in run["settings"].items() if name != "revision"}
    return {**run, "key": key_of_identity(identity), "settings": identity}


def test_runs_of_a_rule_that_has_changed_since_are_shown_as_stale_and_in_no_comparison(tmp_path):
    store = Store(tmp_path)
    cells = [cell for cell in RESULTS["table-3"].cells_of(QUICK, ["paper"]) if cell.column == FIRST]
    fill(store, cells, {"PC-ASGD-PV": 0.8, "D-ASGD": 0.7}, seeds=2, spread=0.002)
    (cell,) = [cell for cell in cells if cell.row == "DC-S3GD"]
    store.add(as_it_was(record(cell, 0, 0.6)))
    section = section_of("table-3", store)
    assert list(section.stale) == [("DC-S3GD", FIRST)] and ("DC-S3GD", FIRST) not in section.outcomes
    assert "1 order only, 0 failed, 39 not run" in RESULTS["table-3"].verdict(section).sentence
    page = page_of("table-3", store, tmp_path)
    assert "| DC-S3GD | 86.3 ± 0.8 | stale: 60.0 (1) |" in page
    note = "Changed since they were run (stale, in no comparison and no picture): "
    assert f"{note}DC-S3GD." in " ".join(page.split())
    summary = " ".join(summary_of(store, tmp_path).split())
    assert "1 rule changed after the runs. No comparison or picture has those runs." in summary
    assert re.search(r"Not run:\*\* [^*]*PC-ASGD-PV beats [\w-]+, [\w-]+", summary)
    store.add(record(cell, 0, 0.9))  # a run of the present rule takes the place of the former one
    assert section_of("table-3", store).stale == {} and len(store.all()) == 6


def test_a_run_that_diverged_is_marked(tmp_path):
    store = Store(tmp_path)
    cells = RESULTS["table-4"].cells_of(QUICK, ["paper"])
    store.add(record(cells[0], 0, 0.1, status="the loss is nan"))
    store.add(record(cells[0], 1, 0.3))
    assert "20.0 ± 14.1 (2, 1 diverged)" in page_of("table-4", store, tmp_path)


def test_the_scale_with_more_runs_leads_and_the_other_is_told_too(tmp_path):
    store = table_4(tmp_path, PRINTED)
    full = RESULTS["table-4"].cells_of(SCALES["full"], ["paper"])
    turned = {**PRINTED, "D-ASGD": 0.99}
    fill(store, full, {row: turned[row] for row in ("PC-ASGD-PV", "D-ASGD")}, 2, 0.002, scale="full")
    sections = sections_of("table-4", store)
    assert [section.scale.name for section in sections] == ["full", "quick"]
    assert [section.scale.name for section in leading(sections)] == ["quick"]
    page = page_of("table-4", store, tmp_path)
    assert "**Scale full, protocol paper.** 8 comparisons: 0 reproduced, 0 order only, 1 failed, 7 not" in page
    assert "**Scale quick, protocol paper.** 8 comparisons: 8 reproduced" in page
    lead, others = summary_of(store, tmp_path).split("## Other scales")
    assert "| result | scale | protocol | reproduced | order only | failed | not run |" in lead
    assert "| [table-4](table-4.md) | quick | paper | 8 | 0 | 0 | 0 |" in lead
    assert "| [table-4](table-4.md) | full | paper | 0 | 0 | 1 | 7 |" in others
    fill(store, full, turned, 2, 0.002, scale="full")
    assert [section.scale.name for section in leading(sections_of("table-4", store))] == ["full"]


def drawn(name, store):
    return RESULTS[name].picture([section_of(name, store)])


def test_a_rule_looks_alike_in_all_pictures(tmp_path):
    store = Store(tmp_path)
    for name in ("fig-delay", "fig-size", "fig-accuracy"):
        fill(store, RESULTS[name].cells_of(QUICK, ["paper"]), {"DM-ASGD": 0.6, "synchronous": 0.7, "D-ASGD": 0.3})
    legends = [drawn(name, store).legends[0] for name in ("fig-delay", "fig-size", "fig-accuracy")]
    looks = [{line.get_label(): (line.get_color(), line.get_marker()) for line in each.get_lines()} for each in legends]
    shared = set.intersection(*map(set, looks))
    assert shared == {"D-ASGD", "DM-ASGD", "synchronous"}  # the legend has no row without a line
    for row in shared:
        assert len({look[row] for look in looks}) == 1
    assert len({looks[0][row] for row in shared}) == len(shared)


def test_a_panel_of_nothing_is_left_out(tmp_path):
    store = Store(tmp_path)
    store.add(record(RESULTS["fig-choice"].cells_of(QUICK, ["paper"])[0], 0, 0.5))
    titles = [panel.get_title(loc="left") for panel in drawn("fig-choice", store).axes]
    assert titles == ["a choice for each model, protocol paper"]


@pytest.mark.parametrize(("share", "word"), [(0.62, REPRODUCED), (0.37, REPRODUCED), (0.97, FAILED)])
def test_the_share_of_predicting_is_compared_with_either_reading(tmp_path, share, word):
    store = Store(tmp_path)
    cells = RESULTS["fig-choice"].cells_of(QUICK, ["paper"])
    history = {"epoch": [0.0, 1.0], "accuracy": [0.1, 0.5], "spread": [0.0, 0.0]}
    store.add(record(cells[0], 0, 0.5, history={**history, "predict": [None, [share - 0.01, share + 0.01]]}))
    verdict = verdict_of("fig-choice", store)
    assert verdict.word == word and f"in {share:.3f} of the last steps" in verdict.sentence


def test_seeds_are_averaged_over_the_epochs_at_which_all_were_looked_at():
    """A run that another result had made, and nobody watched, has its end only."""
    cell = RESULTS["fig-choice"].cells_of(QUICK, ["paper"])[0]
    watched = {"epoch": [0.0, 3.0, 30.0], "accuracy": [0.1, 0.2, 0.5], "predict": [None, [0.9, 0.7], [0.5, None]]}
    alone = {"epoch": [30.0], "accuracy": [0.7], "predict": [[0.3, None]]}
    both = Outcome(cell, [record(cell, 0, 0.5, history=watched), record(cell, 1, 0.7, history=alone)])
    assert both.accuracy_curve() == ([30.0], [pytest.approx(60)])
    assert both.predict_shares() == ([30.0], [[pytest.approx(0.4), None]])
    one = Outcome(cell, both.records[:1])
    assert one.accuracy_curve() == ([0.0, 3.0, 30.0], [10, 20, 50])
    assert one.predict_shares() == ([3.0, 30.0], [[0.9, 0.7], [0.5, None]])
    ended = {"epoch": [0.0, 3.0], "accuracy": [0.1, 0.2], "predict": [None, [0.7, 0.5]]}  # early
    some = Outcome(cell, [both.records[0], record(cell, 1, 0.2, history=ended)])
    assert some.predict_shares() == ([3.0], [[pytest.approx(0.8), pytest.approx(0.6)]])


@pytest.mark.parametrize(("seconds", "word"), [(1.17, REPRODUCED), (1.6, ORDER_ONLY), (0.9, FAILED)])
def test_the_time_is_compared_with_17_per_cent(tmp_path, seconds, word):
    store = Store(tmp_path)
    for cell in RESULTS["fig-time"].cells_of(QUICK, ["paper"]):
        if cell.row in ("PC-ASGD-PV", "D-ASGD"):
            each = seconds if cell.row == "PC-ASGD-PV" else 1.0
            store.add(record(cell, 0, 0.5, epoch_seconds=[each, each, 9.0]))
    assert verdict_of("fig-time", store).word == word


def test_times_of_different_devices_are_not_compared(tmp_path):
    store = Store(tmp_path)
    for cell in RESULTS["fig-time"].cells_of(QUICK, ["paper"]):
        store.add(record(cell, 0, 0.5, epoch_seconds=[1.0], device=f"made up {cell.row}"))
    assert verdict_of("fig-time", store).word == NOT_RUN


def one_by_one(texts):
    """'A beats B, C; D falls' as 'A beats B', 'A beats C', 'D falls'."""
    for text in texts.split("; "):
        winner, beats, losers = text.partition(" beats ")
        yield from (winner + beats + loser for loser in losers.split(", "))


def test_the_summary_sorts_results_and_names_what_is_better(tmp_path):
    store = table_4(tmp_path, PRINTED)
    cells = [c for c in RESULTS["table-2"].cells_of(QUICK, ["paper"]) if "CIFAR-10, 20" in c.column]
    rows = {"PC-ASGD-PV": 0.6, "D-ASGD": 0.7, "C-ASGD": 0.75, "DM-ASGD": 0.8, "synchronous": 0.9}
    fill(store, cells, rows, seeds=2, spread=0.001)
    choices = RESULTS["fig-choice"].cells_of(QUICK, ["paper"])
    fill(store, [choices[0]], {choices[0].row: 0.5})  # predicts in 0.6 of the steps, as the record says
    page = summary_of(store, tmp_path)
    words = " ".join(page.split())
    told = dict(re.findall(r"\*\*(?:In )?(every|some|no|Not run)(?: comparisons?)?:\*\* (.*?)\. ", words))
    assert {word: set(one_by_one(texts)) for word, texts in told.items()} == {
        "every": {
            "C-ASGD beats D-ASGD",
            "PC-ASGD-PV beats any other choice of theta",
            "accuracy falls with the number of agents",
        },
        "some": {"PC-ASGD-PV beats D-ASGD"},
        "no": {"PC-ASGD-PV beats C-ASGD"},
        "Not run": {
            *("P-ASGD beats D-ASGD", "accuracy falls with the delay"),
            *(f"PC-ASGD-PV beats {row}" for row in ("P-ASGD", *RIVALS) if row != "D-ASGD"),
            *(f"PC-ASGD beats {row}" for row in ("P-ASGD", "C-ASGD", *RIVALS)),
        },
    }
    assert "| C-ASGD beats D-ASGD | +1.7 to +2.1 | 2 of 2: +5.0 |" in page
    assert "| PC-ASGD-PV beats any other choice of theta | +1.0 to +3.2 | 7 of 7 (7 in size): +1.0 to +3.2 |" in page
    assert "[fig-choice](fig-choice.md), scale quick, protocol paper. Reproduced" in words
    assert "| PC-ASGD-PV beats D-ASGD | " in page and "| 1 of 3 (1 in size): -10.0 to +3.3 |" in page
    assert "| PC-ASGD-PV beats C-ASGD | " in page and "| 0 of 2: -15.0 |" in page
    assert "| DM-ASGD beats PC-ASGD-PV |  | 2 of 2: +20.0 |" in page  # the run of 20 agents is one of fig-size too
    assert "synchronous beats" not in page and (tmp_path / "summary.png").is_file()
    assert "Not run yet: " in page and "fig-time" in page


def test_a_summary_of_nothing_is_a_page_too(tmp_path):
    assert "Not run yet: table-2" in summary_of(Store(tmp_path), tmp_path)


@pytest.fixture
def short_toy(monkeypatch):
    """The simple functions, but a few steps at one delay; says how often they were run."""
    calls = []

    def run(seeds, on_case):
        calls.append(seeds)
        return run_toy(seeds, 60, (1,), on_case)

    monkeypatch.setattr(toy_page, "run_toy", run)
    monkeypatch.setattr(toy_page, "STEPS", 60)
    monkeypatch.setattr(toy_page, "write_toy_figures", lambda rows, folder: [])
    return calls


def test_the_simple_functions_are_run_once_and_written(command, short_toy, tmp_path):
    first = command.well("reproduce", "toy", "--json").document
    assert first["status"] == "finished" and "results/toy.md" in first["pages"] and short_toy == [1]
    again = command.well("reproduce", "toy", "--json").document
    assert again["pages"] == first["pages"] and short_toy == [1]
    assert "[toy](toy.md) (10 statements: " in (tmp_path / "results/README.md").read_text()
    (tmp_path / "results/data/toy.json").write_text("[{")
    assert toy_page.stored_toy(tmp_path / "results") == []


def test_the_simple_functions_end_at_the_time_limit(command, short_toy, tmp_path):
    cut = command.well("reproduce", "toy", "--time-limit", "1e-9", "--json").document
    assert cut["status"] == "time limit" and not (tmp_path / "results/toy.md").exists()


def test_table_1_says_what_holds_of_each_rate():
    page = RESULTS["table-1"].page()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) == 8 and all(line.count("|") == 11 for line in rows)
    assert "O(eps^T)" in page and "neighbourhood whose radius does not vanish" in page
