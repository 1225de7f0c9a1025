"""`gossamer reproduce`: runs that are kept, stopped and continued, what is shown and what is refused."""

import dataclasses
import json
import time
from types import SimpleNamespace

import pytest

from gossamer.cli.interrupt import Interrupt
from gossamer.cli.reproduce_run import time_left
from gossamer.paper import RESULTS
from gossamer.paper import make_run as runs
from gossamer.paper.campaign import Campaign, unique
from gossamer.paper.cells import SCALES, Conditions, chosen, settings_for
from gossamer.paper.store import Store
from reproducing import TINY, cells_of, made_up, record


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(SCALES, "smoke", TINY)


@pytest.fixture
def without_pages(monkeypatch):
    """Pictures take longer than small runs; other tests look at them."""
    monkeypatch.setattr("gossamer.cli.reproduce_run.write_pages", lambda results, sections, folder: [])


# Runs.


def test_one_run_stands_for_c_asgd_at_all_delays(tmp_path, tiny):
    accuracies = set()
    for delay in ("20", "5"):
        settings = dataclasses.replace(settings_for(TINY, "paper", Conditions(), "c-asgd"), delay=delay)
        job = runs.Job(settings, "smoke", 2)
        accuracies.add(runs.make_run(job, tmp_path, lambda steps: None, lambda: None)["accuracy"])
    assert len(accuracies) == 1
    assert len({cell.key for cell in cells_of("fig-delay") if cell.row == "C-ASGD" and not cell.tune_on}) == 1


def test_a_finished_run_is_not_run_twice_whichever_result_asks(command, tiny, without_pages, monkeypatch):
    first = command.well("reproduce", "table-4", "--protocol", "paper", "--only", "D-ASGD", "--json").document
    assert (first["runs"], first["done"], first["made_now"]) == (1, 1, 1)
    monkeypatch.setattr(runs, "Training", None)  # nothing can run any more
    again = command.well(
        "reproduce", "table-4,fig-choice", "--protocol", "paper", "--only", "D-ASGD", "--json"
    ).document
    assert (again["runs"], again["done"], again["made_now"]) == (1, 1, 0)
    other = command.well("reproduce", "table-3", "--protocol", "paper", "--only", "D-ASGD, Pre", "--json").document
    assert (other["runs"], other["made_now"]) == (1, 0)


class StopAfter:
    """Says 'time limit' from the n-th time on that it is asked."""

    def __init__(self, asked):
        self.left = asked

    def __call__(self):
        self.left -= 1
        return "time limit" if self.left < 0 else None


def campaign_in(folder, cells, seeds=1):
    return Campaign(unique(cells), seeds, TINY, Store(folder), folder)


def test_a_stopped_run_goes_on_to_the_same_numbers(tmp_path, tiny):
    cells = chosen(cells_of("table-4", "smoke", ["paper"]), ["PC-ASGD-PV"])
    whole = campaign_in(tmp_path / "whole", cells)
    assert whole.run(lambda *_: None, lambda: None) == ("finished", 1)
    stops, status = 0, ""
    while status != "finished" and stops < 9:
        cut = campaign_in(tmp_path / "cut", cells)
        status, made = cut.run(lambda *_: None, StopAfter(30))
        if status != "finished":
            stops += 1
            assert (status, made, cut.done(), cut.total()) == ("time limit", 0, 0, 1)
            assert len(list((tmp_path / "cut/runs").iterdir())) == 1
    assert 2 <= stops < 9 and not list((tmp_path / "cut/runs").iterdir())
    (one,), (other,) = whole.store.all(), Store(tmp_path / "cut").all()
    apart = ("seconds", "date")
    assert {k: v for k, v in one.items() if k not in apart} == {k: v for k, v in other.items() if k not in apart}


def test_a_saved_run_that_is_damaged_begins_anew(tmp_path, tiny):
    cells = chosen(cells_of("table-4", "smoke", ["paper"]), ["D-ASGD"])
    assert campaign_in(tmp_path, cells).run(lambda *_: None, StopAfter(30))[0] == "time limit"
    (folder,) = (tmp_path / "runs").iterdir()
    (folder / "checkpoint.npz").write_bytes(b"not a checkpoint")
    with pytest.warns(RuntimeWarning, match="starts again"):
        assert campaign_in(tmp_path, cells).run(lambda *_: None, lambda: None) == ("finished", 1)


def test_a_long_run_is_saved_on_the_way(tmp_path, tiny, monkeypatch):
    saved, steps = [], []
    # A second a step: by the real time, a slow machine would do nothing but save.
    clock = SimpleNamespace(monotonic=lambda: float(len(steps)), perf_counter=time.perf_counter)
    monkeypatch.setattr(runs, "time", clock)
    monkeypatch.setattr(runs, "SAVE_AFTER", 10.0)
    monkeypatch.setattr(runs, "_save", lambda training, result, path: saved.append(training.simulation.t))
    cells = chosen(cells_of("table-4", "smoke", ["paper"]), ["D-ASGD"])
    slow = lambda *_: lambda step, row: steps.append(step)  # noqa: E731
    assert campaign_in(tmp_path, cells).run(slow, lambda: None) == ("finished", 1)
    assert saved and saved == sorted(saved)


def test_a_run_that_nobody_watches_leaves_one_row_stopped_or_not(tmp_path, tiny):
    job = runs.Job(settings_for(TINY, "paper", Conditions(), "d-asgd"), "smoke", 0)
    whole = runs.make_run(job, tmp_path / "whole", lambda steps: None, lambda: None)
    with pytest.raises(runs.Stopped):
        runs.make_run(job, tmp_path / "part", lambda steps: None, StopAfter(5))
    rest = runs.make_run(job, tmp_path / "part", lambda steps: None, lambda: None)
    assert len(whole["history"]["epoch"]) == 1 and whole["accuracy_best"] == whole["accuracy"]
    assert {**rest, "seconds": 0} == {**whole, "seconds": 0}


def test_only_what_is_drawn_over_time_is_evaluated_on_the_way(tmp_path, monkeypatch):
    looks = {}

    def made(job, folder, on_begin, stop):
        looks[job.key] = job.evaluations
        return made_up(job, folder, on_begin, stop)

    monkeypatch.setattr("gossamer.paper.campaign.make_run", made)
    cells = unique(cells_of("table-3", "quick", ["paper"]))
    campaign = Campaign(cells, 1, SCALES["quick"], Store(tmp_path), tmp_path)
    campaign.run(lambda *_: None, lambda: None)
    curves = {cell.key: cell.settings for cell in cells_of("fig-accuracy", "quick", ["paper"])}
    shared = curves.keys() & looks.keys()
    assert len(shared) == 5 * 4  # PC-ASGD in both readings, D- and DM-ASGD and the ceiling, in four cases
    assert all(looks[key] == (5 if curves[key].model.startswith("densenet") else 10) for key in shared)
    assert {count for key, count in looks.items() if key not in shared} == {0}


def test_whichever_result_asks_for_it_a_run_that_is_drawn_is_watched():
    """Whatever rate is found: two results may look for one in different places and find the same."""

    def ends(name):
        return {cell.at(0.3, 0.9).key: cell for cell in cells_of(name)}

    drawn = ends("fig-accuracy") | ends("fig-choice")
    assert all(cell.watched for cell in drawn.values())
    shared = [cell for name in RESULTS for key, cell in ends(name).items() if key in drawn]
    assert len(shared) > len(drawn) and all(cell.watched for cell in shared)
    assert any(cell.column.startswith("preresnet:20, 30 epochs") for cell in shared)


def test_the_first_seed_of_everything_comes_before_the_second(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr("gossamer.paper.campaign.make_run", made_up)
    cells = chosen(cells_of("table-4", "smoke", ["paper"]), ["theta 0."])
    campaign_in(tmp_path, cells, seeds=2).run(lambda label, *_: order.append(label), lambda: None)
    assert [label.rpartition(" ")[2] for label in order] == ["0"] * 3 + ["1"] * 3


def test_runs_can_be_made_without_pages_and_pages_without_runs(command, tiny, tmp_path):
    asked = ("reproduce", "table-4", "--protocol", "paper", "--only", "D-ASGD", "--out", tmp_path)
    made = command.well(*asked, "--no-pages")
    assert "1 of 1 runs are finished (1 made now)" in made.out and "no pages were written" in made.out
    assert not list(tmp_path.glob("*.md"))
    assert f"the summary is {tmp_path / 'README.md'}" in command.well(*asked, "--pages").out
    assert (tmp_path / "table-4.md").exists()


def test_the_time_limit_ends_well_and_says_how_much_is_there(command, tiny, without_pages):
    cut = command("reproduce", "table-4", "--protocol", "paper", "--time-limit", "1e-9")
    assert (cut.status, cut.err) == (0, "")
    assert "0 of 11 runs are finished; time left: unknown" in cut.out
    assert "0 of 11 runs are finished (0 made now, time limit)" in cut.out


def test_ctrl_c_keeps_what_was_run_and_ends_with_130(command, tiny, without_pages, monkeypatch):
    stop = StopAfter(100)

    class Interrupted(Interrupt):
        def __call__(self):
            return "interrupted" if stop() else None

    monkeypatch.setattr("gossamer.cli.reproduce_run.Interrupt", Interrupted)
    cut = command("reproduce", "table-4", "--protocol", "paper")
    assert cut.status == 130 and "the same command continues" in cut.err
    monkeypatch.setattr("gossamer.cli.reproduce_run.Interrupt", Interrupt)
    rest = command.well("reproduce", "table-4", "--protocol", "paper", "--only", "theta 0.3", "--json").document
    assert rest["runs"] == 1 and rest["done"] == 1 and rest["made_now"] == 0


@pytest.mark.parametrize(
    ("scale", "device", "warned"), [("smoke", "cpu", False), ("quick", "cpu", True), ("quick", "cuda", False)]
)
def test_whoever_has_no_gpu_is_warned_before_the_large_runs(tmp_path, scale, device, warned):
    cells = cells_of("table-4", scale, ["paper"])
    told = time_left(Campaign(cells, 1, SCALES[scale], Store(tmp_path), tmp_path, device), len(cells))
    assert told.startswith("time left: unknown") and ("meant for a GPU" in told) == warned


def test_time_left_comes_from_stored_runs_of_the_same_kind(command, tiny, without_pages, tmp_path):
    store = Store(tmp_path / "results")
    cells = cells_of("table-4", "smoke", ["paper"])
    store.add(record(cells[0], 0, 0.5, scale="smoke", seconds=70.0))
    out = command.well("reproduce", "table-4", "--protocol", "paper", "--time-limit", "1e-9").out
    assert "1 of 11 runs are finished; time left: about 12 minutes" in out  # ten of 70 s


def test_runs_of_another_machine_are_taken_in_once(command, without_pages, tmp_path):
    cells = cells_of("table-4", "quick", ["paper"])
    here, there = Store(tmp_path / "results"), Store(tmp_path / "there")
    here.add(record(cells[0], 0, 0.5))
    for cell in cells[:3]:
        there.add(record(cell, 0, 0.7))
    file = "there/data/quick.jsonl"
    command.well("reproduce", "table-4", "--scale", "quick", "--pages", "--import", file)
    accuracies = {run["key"]: run["accuracy"] for run in Store(tmp_path / "results").all()}
    assert accuracies == {cells[0].key: 0.5, cells[1].key: 0.7, cells[2].key: 0.7}
    command.well("reproduce", "table-4", "--scale", "quick", "--pages", "--import", file)
    assert len((tmp_path / "results/data/quick.jsonl").read_text().splitlines()) == 3


# The command.


ONE_CELL = {
    "delay-atlas": ["--only", "sync, tau 5, iid"],
    "fig-choice": ["--protocol", "paper", "--only", "literal, tensor"],
    "fig-size": ["--protocol", "paper", "--only", "D-ASGD, 5 agents"],
    "fig-time": ["--only", "D-ASGD"],
    "fig-delay": ["--protocol", "paper", "--only", "PC-ASGD, tau 60"],
    "table-2": ["--protocol", "paper", "--only", "P-ASGD, Pre", "--only", "20 agents"],
    "table-3": ["--protocol", "paper", "--only", "Braking"],
    "table-4": ["--protocol", "paper", "--only", "uniform"],
    "fig-accuracy": ["--protocol", "paper", "--only", "synchronous"],
}


@pytest.mark.parametrize("name", ONE_CELL)
def test_a_cell_of_every_result_runs_at_smoke(command, tiny, without_pages, name):
    document = command.well("reproduce", name, *ONE_CELL[name], "--json").document
    assert document["status"] == "finished" and document["done"] == document["runs"] > 0


@pytest.mark.parametrize("name", [name for name in RESULTS if name not in ("toy", "time")])
def test_every_result_has_its_page_and_picture(command, monkeypatch, name, tmp_path):
    monkeypatch.setattr("gossamer.paper.campaign.make_run", made_up)
    document = command.well("reproduce", name, "--json").document
    assert document["status"] == "finished" and document["done"] == document["runs"]
    page = (tmp_path / f"results/{name}.md").read_text()
    assert "not run" not in page.lower() and f"{name}: " in page and (tmp_path / "results/README.md").is_file()
    assert (tmp_path / f"results/{name}.png").is_file() == (name != "table-1")


def test_the_list_names_every_result_and_what_is_there(command, tmp_path):
    cells = cells_of("table-4", "quick", ["paper"])
    Store(tmp_path / "results").add(record(cells[0], 0, 0.5))
    rows = command.well("reproduce", "--list", "--json").document
    assert [row["name"] for row in rows] == list(RESULTS)
    assert all({"name", "what", "needs", "scales", "done"} <= set(row) for row in rows)
    (row,) = [row for row in rows if row["name"] == "table-4"]
    assert row["done"] == 1 and row["scales"]["quick"] == {"runs": 66, "done": 1}
    assert "1/66" in command.well("reproduce", "table-4", "--list").out


def test_whoever_lists_nothing_in_a_clone_is_told_where_the_published_runs_are(command, tmp_path):
    def told(*more):
        return "add --out docs/results" in command.well("reproduce", "table-4", "--list", *more).out

    assert not told()  # there are none at hand
    published = tmp_path / "docs/results"
    (cell, other, *_) = cells_of("table-4", "quick", ["paper"])
    Store(published).add(record(cell, 0, 0.5))
    assert told() and not told("--out", "docs/results") and not told("--json")
    Store(tmp_path / "results").add(record(other, 0, 0.5))
    assert not told()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "unknown result 'nowhere'"),
        (["table_2"], "did you mean 'table-2'"),
        ([], "no result was given"),
        (["table-2", "--scale", "huge"], "unknown scale 'huge'"),
        (["table-2", "--protocol", "best"], "unknown protocol 'best'"),
        (["table-2", "--seeds", "-1"], "seeds must be 1 or more, got -1"),
        (["table-2", "--time-limit", "0"], "time limit must be more than 0 seconds"),
        (["table-2", "--only", "zebra"], "no label has 'zebra' in it"),
        (["table-2", "--device", "tpu9"], "device 'tpu9' is not available"),
        (["table-2", "--import", "nowhere.jsonl"], "there is no file 'nowhere.jsonl' to import"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(command, arguments, words, tmp_path):
    assert words in command.refused("reproduce", *arguments)
    assert not (tmp_path / "results").exists()


def test_a_folder_that_is_a_file_is_refused(command, tmp_path):
    (tmp_path / "results").write_text("")
    assert "cannot create 'results'" in command.refused("reproduce", "table-1")


def test_what_is_printed_is_one_document_with_verdicts(command, without_pages, monkeypatch):
    monkeypatch.setattr("gossamer.paper.campaign.make_run", made_up)
    out = command.well("reproduce", "fig-time", "--json").out
    (verdict,) = json.loads(out)["verdicts"]
    assert verdict["name"] == "fig-time" and verdict["protocol"] == "paper" and "D-ASGD" in verdict["because"]
