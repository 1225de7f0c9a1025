"""`gossamer reproduce`: cells and their keys, the search for a rate, and the store of runs."""

import dataclasses

import pytest
import torch

from gossamer.engine.trajectory import trajectory
from gossamer.network import network
from gossamer.paper import RESULTS, find_results
from gossamer.paper.atlas import SAME_WITH_EQUAL_DATA, SAME_WITHOUT_DELAY
from gossamer.paper.cells import AGENTS, PROTOCOLS, SCALES, Cell, Conditions, chosen, command_of, key_of, settings_for
from gossamer.paper.paper_result import MeasuredResult
from gossamer.paper.store import Store
from reproducing import cells_of, record
from worlds import Smooth

WITH_RUNS = [name for name, result in RESULTS.items() if isinstance(result, MeasuredResult)]


# Cells.


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", WITH_RUNS)
def test_the_places_of_a_result_are_distinct(name, scale):
    for protocol in RESULTS[name].protocols:
        places = [(cell.row, cell.column) for cell in cells_of(name, scale, [protocol])]
        assert places and len(set(places)) == len(places)


@pytest.mark.parametrize("name", WITH_RUNS)
def test_cells_of_one_key_have_the_same_settings(name):
    by_key: dict[str, Cell] = {}
    for cell in cells_of(name):
        assert by_key.setdefault(cell.key, cell).settings == cell.settings


def test_claims_and_printed_numbers_name_places_that_exist():
    for name in WITH_RUNS:
        result = RESULTS[name]
        places = {(cell.row, cell.column) for cell in result.cells_of(SCALES["full"], list(PROTOCOLS))}
        assert set(result.reported) <= places, name
        assert {place for claim in result.claims for place in (claim.larger, claim.smaller)} <= places, name


@pytest.mark.parametrize(
    "change",
    [
        *({"lr": 0.02}, {"delay": "5"}, {"epochs": 31}, {"algorithm": "p-asgd", "options": {}}, {"validation": 0.2}),
        *({"options": {"theta": 0.3}}, {"momentum": 0.9}, {"network": "paper-3"}, {"partition": "dirichlet:0.3"}),
    ],
)
def test_a_key_changes_with_what_changes_the_numbers(change):
    settings = settings_for(SCALES["quick"], "paper", Conditions(), "pc-asgd/theta=pv")
    assert key_of(dataclasses.replace(settings, **change)) != key_of(settings)


@pytest.mark.parametrize(
    "change", [{"device": "cuda", "precision": "bf16"}, {"eval_every": 7}, {"seed": 3}, {"threads": 2}]
)
def test_a_key_does_not_depend_on_where_and_how_often_one_looks(change):
    settings = settings_for(SCALES["quick"], "paper", Conditions(), "pc-asgd/theta=pv")
    assert key_of(dataclasses.replace(settings, **change)) == key_of(settings)


def test_an_option_given_as_its_default_is_no_other_experiment():
    settings = settings_for(SCALES["quick"], "paper", Conditions(), "pc-asgd/theta=pv")
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
    assert wanted.items() <= cell.settings.identity("experiment").items()
    assert SCALES["full"].seeds == 6 and cell.settings.options["criterion"] == "literal"


def test_networks_have_the_agents_that_the_search_counts():
    assert all(network(name).num_agents == agents for name, agents in AGENTS.items())


def test_only_narrows_by_label():
    cells = cells_of("table-2")
    found = chosen(cells, ["cifar-10,", "8 agents", "paper"])
    assert found and all("CIFAR-10, 8 agents" in cell.column and cell.protocol == "paper" for cell in found)
    assert chosen(cells, ["nowhere"]) == []


def test_names_are_read_with_commas_and_all():
    assert [result.name for result in find_results("table-4, fig-delay,table-4")] == ["table-4", "fig-delay"]
    assert [result.name for result in find_results("all")] == list(RESULTS)


@pytest.mark.parametrize("text", SAME_WITHOUT_DELAY)
def test_what_shares_the_synchronous_run_without_delay_is_that_run(text):
    keys = {cell.row: cell.key for cell in cells_of("delay-atlas", "quick", ["tuned"]) if cell.column == "tau 0, iid"}
    shared = len(SAME_WITHOUT_DELAY) + len(SAME_WITH_EQUAL_DATA)
    assert keys[text] == keys["sync"] and len(set(keys.values())) == len(keys) - shared
    for spec in ("paper-1", "paper-3"):
        net = network(spec, 0)
        losses, local = Smooth(net.num_agents, 5, seed=0), {"momentum": 0.9, "weight_decay": 1e-4}
        paths = [trajectory(rule, net, losses.gradient, losses.x0, steps=30, **local) for rule in (text, "sync")]
        assert torch.equal(*paths)


@pytest.mark.parametrize(("text", "other"), SAME_WITH_EQUAL_DATA.items())
def test_what_shares_a_run_with_equal_data_is_that_run(text, other):
    cells = {(cell.row, cell.column): cell for cell in cells_of("delay-atlas", "quick", ["tuned"])}
    for column in {column for _, column in cells}:
        mine, theirs = cells[text, column], cells[other, column]
        assert mine.tune_on == theirs.tune_on and (mine.key == theirs.key) == column.endswith("iid")
    for delay in (0, 3, 7):
        net = network("paper-1", delay)
        losses = Smooth(net.num_agents, 5, seed=0)
        paths = [trajectory(rule, net, losses.gradient, losses.x0, steps=40) for rule in (text, other)]
        assert torch.equal(*paths)


# The store.


def test_a_half_written_line_is_skipped_with_a_warning_and_the_next_one_is_whole(tmp_path):
    store, cells = Store(tmp_path), cells_of("table-4", "quick", ["paper"])
    store.add(record(cells[0], 0, 0.5))
    path = tmp_path / "data/quick.jsonl"
    with path.open("ab") as file:
        file.write(b'{"key": "abc", "seed": 0, "sca')
    with pytest.warns(RuntimeWarning, match=r"quick.jsonl' line 2 is damaged and skipped"):
        store = Store(tmp_path)
    assert len(store.all()) == 1
    store.add(record(cells[1], 0, 0.6))
    with pytest.warns(RuntimeWarning, match="line 2"):
        assert len(Store(tmp_path).all()) == 2


@pytest.mark.parametrize("line", ["[1]", "{}", '{"key": 3}', "\x00\x00", '{"key": "a", "seed": 0, "scale": "../x"}'])
def test_lines_that_are_no_runs_are_skipped(tmp_path, line):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/quick.jsonl").write_text(line + "\n")
    with pytest.warns(RuntimeWarning, match="skipped"):
        assert Store(tmp_path).all() == []
