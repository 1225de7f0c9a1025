"""`gossamer reproduce`: cells and their keys, runs that are kept, stopped and continued, and what is refused."""

import dataclasses
import json
import time

import pytest

from gossamer.experiments.reproduce import run as runs
from gossamer.experiments.reproduce.campaign import Campaign, unique
from gossamer.experiments.reproduce.cells import Cell, chosen, command_of, essence, key_of
from gossamer.experiments.reproduce.rates import Missing, Rates
from gossamer.experiments.reproduce.recipes import RECIPES, find_recipes
from gossamer.experiments.reproduce.scales import PROTOCOLS, SCALES, Setting, at_length, settings_for
from gossamer.experiments.reproduce.store import Store
from gossamer.network import network
from reproducing import TINY, record

WITH_RUNS = [name for name, recipe in RECIPES.items() if recipe.kind not in ("document", "toy")]


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(SCALES, "smoke", TINY)


def cells_of(name, scale="quick", protocols=tuple(PROTOCOLS)):
    return RECIPES[name].cells_of(SCALES[scale], list(protocols))


def made_up(job, folder, on_begin, stop):
    """A run that takes no time; what it ends with depends on its settings alone."""
    on_begin(10)
    accuracy = int(job.key[:4], 16) / 2**17 + (0.3 if job.settings.lr == 0.3 else 0.0)
    seconds = {"epoch_seconds": [0.1, 0.2]} if job.timed else {}
    return record(Cell("", "", "", job.settings), job.settings.seed, accuracy, scale=job.scale, **seconds)


# Cells.


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", WITH_RUNS)
def test_the_places_of_a_result_are_distinct(name, scale):
    for protocol in RECIPES[name].protocols:
        places = [(cell.row, cell.column) for cell in cells_of(name, scale, [protocol])]
        assert places and len(set(places)) == len(places)


@pytest.mark.parametrize("name", WITH_RUNS)
def test_cells_of_one_key_have_the_same_settings(name):
    by_key: dict[str, Cell] = {}
    for cell in cells_of(name):
        assert by_key.setdefault(cell.key, cell).settings == cell.settings


def test_claims_and_printed_numbers_name_places_that_exist():
    for recipe in RECIPES.values():
        places = {(cell.row, cell.column) for cell in recipe.cells_of(SCALES["full"], list(PROTOCOLS))}
        assert set(recipe.reported) <= places, recipe.name
        assert {place for claim in recipe.claims for place in (claim.larger, claim.smaller)} <= places, recipe.name


@pytest.mark.parametrize(
    "change",
    [
        *({"lr": 0.02}, {"delay": "5"}, {"epochs": 31}, {"algorithm": "p-asgd", "options": {}}, {"validation": 0.2}),
        *({"options": {"theta": 0.3}}, {"momentum": 0.9}, {"network": "paper-3"}, {"partition": "dirichlet:0.3"}),
    ],
)
def test_a_key_changes_with_what_changes_the_numbers(change):
    settings = settings_for(SCALES["quick"], "paper", Setting(), "pc-asgd/theta=pv")
    assert key_of(dataclasses.replace(settings, **change)) != key_of(settings)


@pytest.mark.parametrize(
    "change", [{"device": "cuda", "precision": "bf16"}, {"eval_every": 7}, {"seed": 3}, {"threads": 2}]
)
def test_a_key_does_not_depend_on_where_and_how_often_one_looks(change):
    settings = settings_for(SCALES["quick"], "paper", Setting(), "pc-asgd/theta=pv")
    assert key_of(dataclasses.replace(settings, **change)) == key_of(settings)


def test_an_option_given_as_its_default_is_no_other_experiment():
    settings = settings_for(SCALES["quick"], "paper", Setting(), "pc-asgd/theta=pv")
    explicit = dataclasses.replace(settings, options={**settings.options, "scope": "agent"})
    assert key_of(explicit) == key_of(settings)


def test_the_command_of_a_run_repeats_it(command):
    cell = cells_of("table-4", "smoke", ["paper"])[0]
    settings = dataclasses.replace(cell.settings, epochs=3)
    words = command_of(settings).split()[1:]
    summary = command.well(*words, "--json", "--out", "run").document
    assert summary["iterations"] == 36 and summary["options"]["theta"] == 0.3 and summary["seed"] == 0


def test_the_full_scale_is_the_papers_protocol():
    (cell,) = [c for c in cells_of("table-4", "full", ["paper"]) if c.row == "PC-ASGD-PV"]
    wanted = {"model": "preresnet:110", "task": "cifar10", "batch": 128, "epochs": 200, "lr": 0.01, "delay": "20"}
    wanted |= {"momentum": 0.0, "weight_decay": 1e-4, "theta": "pv", "network": "paper-1", "schedule": "step:0.8"}
    assert wanted.items() <= essence(cell.settings).items()
    assert SCALES["full"].seeds == 6 and cell.settings.options["criterion"] == "literal"


def test_networks_have_the_agents_that_the_search_counts():
    from gossamer.experiments.reproduce.scales import AGENTS

    assert all(network(name).num_agents == agents for name, agents in AGENTS.items())


def test_only_narrows_by_label():
    cells = cells_of("table-2")
    found = chosen(cells, ["cifar-10,", "8 agents", "paper"])
    assert found and all("CIFAR-10, 8 agents" in cell.column and cell.protocol == "paper" for cell in found)
    assert chosen(cells, ["nowhere"]) == []


def test_names_are_read_with_commas_and_all():
    assert [recipe.name for recipe in find_recipes("table-4, fig-delay,table-4")] == ["table-4", "fig-delay"]
    assert [recipe.name for recipe in find_recipes("all")] == list(RECIPES)


# Runs.


def test_one_run_stands_for_c_asgd_at_all_delays(tmp_path, tiny):
    accuracies = set()
    for delay in ("20", "5"):
        settings = dataclasses.replace(settings_for(TINY, "paper", Setting(), "c-asgd"), delay=delay)
        job = runs.Job(settings, "smoke", 2)
        accuracies.add(runs.make_run(job, tmp_path, lambda steps: None, lambda: None)["accuracy"])
    assert len(accuracies) == 1
    assert len({cell.key for cell in cells_of("fig-delay") if cell.row == "C-ASGD" and not cell.tune_on}) == 1


def test_a_finished_run_is_not_run_twice_whichever_result_asks(command, tiny, monkeypatch):
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
    stops = 0
    while True:
        cut = campaign_in(tmp_path / "cut", cells)
        status, made = cut.run(lambda *_: None, StopAfter(30))
        if status == "finished":
            break
        stops += 1
        assert (status, made, cut.done(), cut.total()) == ("time limit", 0, 0, 1)
        assert len(list((tmp_path / "cut/runs").iterdir())) == 1
    assert stops >= 2 and not list((tmp_path / "cut/runs").iterdir())
    (one,), (other,) = whole.store.all(), Store(tmp_path / "cut").all()
    apart = ("seconds", "date")
    assert {k: v for k, v in one.items() if k not in apart} == {k: v for k, v in other.items() if k not in apart}


def test_a_saved_run_that_is_damaged_begins_anew(tmp_path, tiny):
    cells = chosen(cells_of("table-4", "smoke", ["paper"]), ["D-ASGD"])
    assert campaign_in(tmp_path, cells).run(lambda *_: None, StopAfter(30))[0] == "time limit"
    (folder,) = (tmp_path / "runs").iterdir()
    (folder / "checkpoint.npz").write_bytes(b"not a checkpoint")
    with pytest.warns(RuntimeWarning, match="beginning anew"):
        assert campaign_in(tmp_path, cells).run(lambda *_: None, lambda: None) == ("finished", 1)


def test_a_long_run_is_saved_on_the_way(tmp_path, tiny, monkeypatch):
    saved = []
    monkeypatch.setattr(runs, "SAVE_AFTER", 0.05)
    monkeypatch.setattr(runs, "_save", lambda training, result, path: saved.append(training.simulation.t))
    cells = chosen(cells_of("table-4", "smoke", ["paper"]), ["D-ASGD"])
    slow = lambda *_: lambda step, row: time.sleep(0.004)  # noqa: E731
    assert campaign_in(tmp_path, cells).run(slow, lambda: None) == ("finished", 1)
    assert saved and saved == sorted(saved)


def test_the_first_seed_of_everything_comes_before_the_second(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr("gossamer.experiments.reproduce.campaign.make_run", made_up)
    cells = chosen(cells_of("table-4", "smoke", ["paper"]), ["theta 0."])
    campaign_in(tmp_path, cells, seeds=2).run(lambda label, *_: order.append(label), lambda: None)
    assert [label.rpartition(" ")[2] for label in order] == ["0"] * 3 + ["1"] * 3


def test_the_time_limit_ends_well_and_says_how_much_is_there(command, tiny):
    cut = command("reproduce", "table-4", "--protocol", "paper", "--time-limit", "1e-9")
    assert (cut.status, cut.err) == (0, "")
    assert "0 of 10 runs are there; time left: unknown" in cut.out
    assert "0 of 10 runs are there (0 made now, time limit)" in cut.out


def test_ctrl_c_keeps_what_was_run_and_ends_with_130(command, tiny, monkeypatch):
    class Interrupted(StopAfter):
        def __call__(self):
            return "interrupted" if super().__call__() else None

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr("gossamer.cli.reproduce.Interrupt", lambda limit: Interrupted(100))
    cut = command("reproduce", "table-4", "--protocol", "paper")
    assert cut.status == 130 and "the same command goes on" in cut.err
    monkeypatch.undo()
    monkeypatch.setitem(SCALES, "smoke", TINY)
    rest = command.well("reproduce", "table-4", "--protocol", "paper", "--only", "theta 0.3", "--json").document
    assert rest["runs"] == 1 and rest["done"] == 1 and rest["made_now"] == 0


def test_time_left_comes_from_stored_runs_of_the_same_kind(command, tiny, tmp_path):
    store = Store(tmp_path / "results")
    cells = cells_of("table-4", "smoke", ["paper"])
    store.add(record(cells[0], 0, 0.5, scale="smoke", seconds=70.0))
    out = command.well("reproduce", "table-4", "--protocol", "paper", "--time-limit", "1e-9").out
    assert "1 of 10 runs are there; time left: about 10 minutes" in out  # nine of 70 s


# Rates.


def test_a_rate_is_searched_on_held_out_data_at_a_third_and_then_downwards(tmp_path):
    scale = dataclasses.replace(SCALES["quick"], rates=(0.01, 0.1, 1.0))
    (cell,) = [
        c for c in cells_of("table-3", "quick", ["tuned"]) if c.label.startswith("D-ASGD, PreResNet-110, CIFAR-100")
    ]
    store, tried = Store(tmp_path), []
    best = {10: 0.1, 30: 0.01}  # what a short and a long run like best
    while True:
        try:
            settled = Rates(scale, store).settled(cell)
            break
        except Missing as missing:
            trial = missing.settings
            tried.append((trial.epochs, trial.lr))
            assert trial.validation == 0.2 and trial.task == "cifar10" and trial.seed == 0
            accuracy = 1 / (1 + abs(trial.lr - best[trial.epochs]))
            store.add(record(Cell("", "", "", trial), 0, accuracy))
    assert tried[:3] == [(10, 0.01), (10, 0.1), (10, 1.0)]
    assert {epochs for epochs, _ in tried[3:]} == {30} and settled.settings.lr == 0.01
    assert settled.settings.task == "cifar100" and settled.settings.validation == 0


def test_a_rule_that_predicts_may_do_without_momentum(tmp_path):
    (cell,) = [c for c in cells_of("table-4", "quick", ["tuned"]) if c.row == "PC-ASGD-PV"]
    store = Store(tmp_path)
    while (missing := next_trial(store, cell)) is not None:
        store.add(record(Cell("", "", "", missing), 0, 0.5 if missing.momentum else 0.6))
    settled = Rates(SCALES["quick"], store).settled(cell)
    assert settled.settings.momentum == 0 and not settled.tune_on


def next_trial(store, cell):
    try:
        Rates(SCALES["quick"], store).settled(cell)
    except Missing as missing:
        return missing.settings
    return None


def test_a_trial_that_diverges_is_no_choice(tmp_path):
    (cell,) = [
        c for c in cells_of("table-3", "quick", ["tuned"]) if c.label.startswith("DM-ASGD, PreResNet-110, CIFAR-10,")
    ]
    store = Store(tmp_path)
    while (missing := next_trial(store, cell)) is not None:
        status = "finished" if missing.lr < 0.2 else "the loss is nan"
        store.add(record(Cell("", "", "", missing), 0, missing.lr, status=status))
    assert Rates(SCALES["quick"], store).settled(cell).settings.lr == 0.1


def test_a_trial_of_other_length_keeps_its_shape():
    settings = settings_for(SCALES["quick"], "tuned", Setting(), "d-asgd")
    assert at_length(settings, 10).warmup == pytest.approx(0.5) and settings.warmup == pytest.approx(1.5)


# The store.


def test_a_half_written_line_is_left_out_with_a_warning_and_the_next_one_is_whole(tmp_path):
    store, cells = Store(tmp_path), cells_of("table-4", "quick", ["paper"])
    store.add(record(cells[0], 0, 0.5))
    path = tmp_path / "data/quick.jsonl"
    with path.open("ab") as file:
        file.write(b'{"key": "abc", "seed": 0, "sca')
    with pytest.warns(RuntimeWarning, match=r"quick.jsonl' line 2 is damaged and left out"):
        store = Store(tmp_path)
    assert len(store.all()) == 1
    store.add(record(cells[1], 0, 0.6))
    with pytest.warns(RuntimeWarning, match="line 2"):
        assert len(Store(tmp_path).all()) == 2


@pytest.mark.parametrize("line", ["[1]", "{}", '{"key": 3}', "\x00\x00", '{"key": "a", "seed": 0, "scale": "../x"}'])
def test_lines_that_are_no_runs_are_left_out(tmp_path, line):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/quick.jsonl").write_text(line + "\n")
    with pytest.warns(RuntimeWarning, match="left out"):
        assert Store(tmp_path).all() == []


def test_runs_of_another_machine_are_taken_in_once(command, tmp_path):
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
def test_a_cell_of_every_result_runs_at_smoke(command, tiny, name):
    document = command.well("reproduce", name, *ONE_CELL[name], "--json").document
    assert document["status"] == "finished" and document["done"] == document["runs"] > 0


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "toy"])
def test_every_result_has_its_page_and_picture(command, monkeypatch, name, tmp_path):
    monkeypatch.setattr("gossamer.experiments.reproduce.campaign.make_run", made_up)
    document = command.well("reproduce", name, "--json").document
    assert document["status"] == "finished" and document["done"] == document["runs"]
    page = (tmp_path / f"results/{name}.md").read_text()
    assert "not run" not in page.lower() and f"{name}: " in page and (tmp_path / "results/README.md").is_file()
    assert (tmp_path / f"results/{name}.png").is_file() == (RECIPES[name].kind != "document")


def test_the_list_names_every_result_and_what_is_there(command, tmp_path):
    cells = cells_of("table-4", "quick", ["paper"])
    Store(tmp_path / "results").add(record(cells[0], 0, 0.5))
    rows = command.well("reproduce", "--list", "--json").document
    assert [row["name"] for row in rows] == list(RECIPES)
    assert all({"name", "what", "needs", "scales", "done"} <= set(row) for row in rows)
    (row,) = [row for row in rows if row["name"] == "table-4"]
    assert row["done"] == 1 and row["scales"]["quick"] == {"runs": 60, "done": 1}
    assert "table-4" in command.well("reproduce", "--list").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "unknown result 'nowhere'"),
        (["table_2"], "did you mean 'table-2'"),
        ([], "there is no result to repeat"),
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


def test_what_is_printed_is_one_document_with_verdicts(command, monkeypatch):
    monkeypatch.setattr("gossamer.experiments.reproduce.campaign.make_run", made_up)
    out = command.well("reproduce", "fig-time", "--json").out
    (verdict,) = json.loads(out)["verdicts"]
    assert verdict["name"] == "fig-time" and verdict["protocol"] == "paper" and "D-ASGD" in verdict["because"]
