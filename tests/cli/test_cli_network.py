"""The commands network and algorithms."""

import pytest
import torch

from command import files_under
from gossamer.algorithms import algorithm_names
from gossamer.network import network


def test_network_json_describes_the_network(command):
    document = command.well("network", "paper-1", "--delay", 20, "--json").document
    assert set(document) >= {"agents", "links", "clusters", "e2", "e2_clip", "assumptions"}
    assert (document["agents"], document["links"]) == (8, 28) and document["clusters"] == [[0, 1, 2], [3, 4, 5, 6, 7]]
    for name, check in document["assumptions"].items():
        assert name in ("W", "W_clip", "W_late") and set(check) >= {"stochastic", "connected", "positive", "e2"}
    assert document["e2_clip"] == pytest.approx(1.0)  # two clusters that never meet
    ring = command.well("network", "ring:8", "--json").document
    assert ring["e2"] == pytest.approx(float(torch.linalg.eigvalsh(network("ring:8").W)[-2]))


def test_network_for_people_shows_assumption_2(command):
    text = command.well("network", "clusters:3,5", "--delay", 20).out
    assert "clusters:3,5: 8 agents, 28 links, clusters 3 + 5, delay 20" in text and "Assumption 2" in text


def test_network_lists_its_kinds(command):
    document = command.well("network", "--json").document
    assert {"ring", "paper-1", "file"} <= set(document["networks"]) and "gilbert" in document["delays"]
    text = command.well("network").out
    assert all(name in text for name in (*document["networks"], *document["delays"]))


def test_network_discovers_clusters_and_delay(command, tmp_path):
    (tmp_path / "matrix.csv").write_text("0,0,7,7\n0,0,7,7\n7,7,0,0\n7,7,0,0\n")
    arguments = ("network", "complete:4", "--delay", "matrix:matrix.csv", "--discover")
    assert command.well(*arguments, "--json").document["discovered"] == {"clusters": [[0, 1], [2, 3]], "tau": 7}
    assert "discovered: clusters [[0, 1], [2, 3]], tau 7" in command.well(*arguments).out


def test_a_saved_network_is_the_same_network(command, tmp_path):
    first = command.well(
        "network", "random:9,p=0.5,seed=2", "--clusters", "4,5", "--save", "net.json", "--json"
    ).document
    again = command.well("network", "file:net.json", "--json").document
    assert {**first, "network": None} == {**again, "network": None}
    before = files_under(tmp_path)
    command.refused("network", "ring:8", "--save", "net.json")
    assert files_under(tmp_path) == before


def test_a_network_is_drawn_into_a_new_file_only(command, tmp_path):
    command.well("network", "paper-1", "--picture", "net.png", "--json")
    assert (tmp_path / "net.png").read_bytes().startswith(b"\x89PNG")
    before = files_under(tmp_path)
    command.refused("network", "ring:8", "--picture", "net.png")
    assert files_under(tmp_path) == before


def test_algorithms_json_is_a_list_of_names_with_options(command):
    document = command.well("algorithms", "--json").document
    assert [rule["name"] for rule in document] == algorithm_names()
    for rule in document:
        assert rule["origin"] in ("published", "adapted", "ours")
        assert rule["summary"] and all(
            set(about) == {"default", "choices", "help"} for about in rule["options"].values()
        )
    assert [rule["name"] for rule in command.well("algorithms", "d-psgd", "--json").document] == ["sync"]


def test_algorithms_for_people_shows_every_option(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    listed = " ".join(command.well("algorithms").out.split())
    for rule in command.well("algorithms", "--json").document:
        assert rule["name"] in listed and rule["summary"] in listed
        text = " ".join(command.well("algorithms", rule["name"]).out.split())
        assert f"{rule['summary']} [{rule['origin']}]" in text
        assert all(option in text for option in rule["options"])
    assert "literal" in command.well("algorithms", "pc-asgd").out
