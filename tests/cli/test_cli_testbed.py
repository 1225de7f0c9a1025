"""The command testbed."""

from pathlib import Path

import pytest

from command import files_under


def test_testbed_json_has_links_ages_clusters_and_the_round(command):
    # Agents 0 and 1 are current; messages to and from 2 take 2 s + 1 byte at 2 bytes/s, so they are 3 steps old.
    matrix = "0,0,2\n0,0,2\n2,2,0\n", "0,inf,2\ninf,0,2\n2,2,0\n"
    for name, text in zip(("latency", "bandwidth"), matrix, strict=True):
        Path(f"{name}.csv").write_text(text)
    spec = "wan:3;latency=matrix:latency.csv;bandwidth=matrix:bandwidth.csv"
    document = command.well("testbed", spec, "--message", "1B", "--json").document
    assert (document["agents"], document["message_bytes"], document["network"]) == (3, 1, "complete:3")
    of_link = {(link["from"], link["to"]): link for link in document["links"]}
    assert (of_link[0, 1]["transfer_seconds"], of_link[0, 1]["age"], of_link[0, 1]["bandwidth"]) == (0, 0, None)
    assert (of_link[2, 1]["transfer_seconds"], of_link[2, 1]["age"], of_link[2, 1]["bandwidth"]) == (2.5, 3, 2)
    assert document["clusters"] == [[0, 1], [2]] and document["iteration_seconds"] == [1, 1, 1]
    assert document["round_seconds"] == pytest.approx(3.5)


def test_step_seconds_and_network_are_those_given(command):
    arguments = (
        "testbed",
        "wan:4,latency=1s,bandwidth=inf",
        "--step-seconds",
        "200ms",
        "--network",
        "ring:4",
        "--json",
    )
    document = command.well(*arguments).document
    assert len(document["links"]) == 8 and {link["age"] for link in document["links"]} == {5}
    assert document["round_seconds"] == pytest.approx(1.2) and document["iteration_seconds"] == [0.2] * 4


def test_testbed_for_people_has_a_row_for_each_pair_of_places(command):
    text = command.well("testbed", "aws:oregon*3,virginia*3,tokyo*2", "--message", "13.6MB", "--step-seconds", 0.2).out
    rows = {line.split("  ")[0].strip(): line.split() for line in text.splitlines() if "↔" in line or "→" in line}
    assert set(rows) == {
        "oregon ↔ virginia",
        "oregon ↔ tokyo",
        "tokyo ↔ virginia",
        *(f"{place} → {place}" for place in ("oregon", "virginia", "tokyo")),
    }
    # 67 ms and 13.6 MB at 0.79 Gbit/s: 205 ms, which an agent with steps of 200 ms uses when it is 2 steps old.
    assert rows["oregon ↔ virginia"][3:] == ["18", "67", "ms", "790", "Mbit/s", "205", "ms", "2"]
    assert "with tolerance=1: {0-2} {3-5} {6-7}" in text and "one synchronous round: 551 ms" in text


def test_a_large_testbed_shows_its_slowest_links(command):
    text = command.well("testbed", "planet:16").out
    rows = [line for line in text.splitlines() if "→" in line or "↔" in line]
    times = [float(line.split()[-3]) for line in rows]
    assert len(rows) == 20 and times == sorted(times, reverse=True) and "faster ones; --json has all" in text


def test_testbed_lists_its_kinds(command):
    document = command.well("testbed", "--json").document
    assert {"aws", "planet"} <= set(document["testbeds"]) and "markov" in document["compute"]
    text = command.well("testbed").out
    assert all(name in text for kinds in document.values() for name in kinds)


@pytest.mark.parametrize("spec", ["aws:oregon*3,virginia*3,tokyo*2", "wan:2", "lan:1"])
def test_a_testbed_is_drawn_into_a_new_file_only(command, tmp_path, spec):
    command.well("testbed", spec, "--out", "bed.png", "--json")
    assert (tmp_path / "bed.png").read_bytes().startswith(b"\x89PNG")
    before = files_under(tmp_path)
    assert "already exists" in command.refused("testbed", spec, "--out", "bed.png")
    assert files_under(tmp_path) == before


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("testbed lna:8", "did you mean 'lan'?"),
        ("testbed lan:8 --message much", "message must be a size, got 'much'; write it like 13.6MB"),
        ("testbed lan:8 --message 5MBit", "unknown unit of a size 'MBit'"),
        ("testbed lan:8 --message=-5", "message must lie in [0, 1e15] bytes"),
        ("testbed lan:8 --network ring:6", "testbed lan:8 has 8 agents, the network 6; use one number for both"),
        ("testbed lan:8 --step-seconds 0", "step_seconds must lie in"),
        ("testbed lan:999", "give --network regular:999,k=4"),
        ("testbed lan:8 --out bed.txt", "ends in .png or .svg or .pdf"),
    ],
)
def test_bad_input_is_refused_in_one_line(command, line, says):
    assert says in command.refused(*line.split())
