"""The benchmark keeps its books, and its command shows them."""

import json
import os
import signal

import pytest

import gossamer as gm
from command import Command
from gossamer.bench import gossip
from gossamer.bench.results import load_all, path_of, save, to_markdown, to_text_table
from gossamer.bench.speed import GOSSIPY, OURS
from gossamer.bench.workloads import Workload
from gossamer.run.machine import device_name

QUICK = ("bench", "--device", "cpu", "--quick")

ENVIRONMENT = {"device": "D", "cpus": 2, "threads": 1, "python": "3", "torch": "2", "triton": None, "gossamer": "0"}
ENVIRONMENT["date"] = "2000-01-01"


def measured(command: Command, *arguments: object) -> dict:
    outcome = command(*QUICK, *arguments, "--json")
    assert outcome.status == 0, outcome.err
    return outcome.document


def record(case="mlp", ms=2.0, **changes):
    made = {
        "case": case,
        "title": case,
        "about": "small",
        "command": f"gossamer bench --cases {case}",
        "environment": ENVIRONMENT,
        "rows": [{"label": "gossamer", "ms": ms, "low": 1.0, "high": 3.0}],
        "facts": {},
        "quick": False,
        "interrupted": False,
    }
    return made | changes


# Books.


def test_another_case_is_added_and_the_same_one_replaced(tmp_path):
    save(tmp_path, "cpu", record("mlp", 2.0))
    save(tmp_path, "cpu", record("thousand", 7.0))
    save(tmp_path, "cpu", record("mlp", 3.0))
    save(tmp_path, "cpu", record("mlp", 4.0, quick=True))
    save(tmp_path, "cpu", record("mlp", 9.0, interrupted=True))
    found = [(one["case"], one["quick"], one["rows"][0]["ms"]) for one in load_all(tmp_path)]
    assert found == [("mlp", False, 3.0), ("thousand", False, 7.0), ("mlp", True, 4.0)]


def test_the_results_of_two_devices_stand_in_one_page(tmp_path):
    save(tmp_path, "cpu", record())
    theirs = record(environment=ENVIRONMENT | {"device": "GPU X", "triton": "9.9"})
    (tmp_path / "results-gpu-x.json").write_text(json.dumps({"device": "GPU X", "cases": {"mlp": theirs}}))
    page = to_markdown(load_all(tmp_path))
    assert page.count("## mlp\n") == 1 and page.count("### ") == 2
    assert "### GPU X" in page and "triton 9.9" in page and "| gossamer | 2 | 1 - 3 |" in page
    assert page.count("`gossamer bench --cases mlp`") == 2 and "2 CPUs, 1 threads, Python 3, torch 2" in page


def test_a_table_shows_the_columns_that_have_values():
    rows = [{"label": "a", "delay": 5, "ms": 123.4, "low": None, "over": 0.5}, {"label": "b", "note": "gone"}]
    headings, cells = to_text_table(record(rows=rows))
    assert headings == ["what", "delay", "ms/iteration", "over D-ASGD", "note"]
    assert cells == [["a", "5", "123", "+50.0 %", "-"], ["b", "-", "-", "-", "gone"]]


# The command.


def test_a_run_writes_json_and_a_page_and_a_second_one_adds_to_them(command, tmp_path):
    document = measured(command, "--cases", "thousand", "--out", "b")
    assert set(document) == {"cases", "interrupted", "results_dir"} and not document["interrupted"]
    (one,) = document["cases"]
    assert set(one) == set(record())
    where = {"device", "cpus", "threads", "python", "torch", "triton", "gossamer", "date"}
    assert set(one["environment"]) == where and one["environment"]["gossamer"] == gm.__version__
    assert one["command"] == "gossamer bench --cases thousand --device cpu --precision float32 --quick"
    measured(command, "--cases", "mlp", "--out", "b", "--steps", 1)
    kept = json.loads(path_of(tmp_path / "b", "cpu").read_text())
    assert kept["device"] == device_name("cpu") and kept["cases"]["thousand quick"] == one
    page = (tmp_path / "b" / "RESULTS.md").read_text()
    assert one["command"] in page and "--cases mlp --device cpu --precision float32 --steps 1 --quick" in page
    assert page == to_markdown(load_all(tmp_path / "b"))


def test_the_usual_cases_of_a_cpu_all_run(command):
    document = measured(command)
    assert [one["case"] for one in document["cases"]] == ["preresnet", "densenet", "mlp", "algorithms"]
    by_case = {one["case"]: one for one in document["cases"]}
    for name, rivals in (("preresnet", 3), ("densenet", 2), ("mlp", 4)):
        rows = by_case[name]["rows"]
        assert rows[0]["label"] == OURS and rows[0]["faster"] == 1 and len(rows) == 1 + rivals
        assert all(row["faster"] == pytest.approx(row["ms"] / rows[0]["ms"]) for row in rows if "ms" in row)
    assert {"bytes_moved", "copy_rate", "floor_ms", "over_floor"} == set(by_case["preresnet"]["facts"])
    labels = {row["label"] for row in by_case["algorithms"]["rows"]}
    assert {rule["name"] for rule in gm.algorithms.describe_algorithms()} | {"pc-asgd/theta=pv"} == labels


def test_a_rival_that_is_not_installed_is_said_to_be(command, monkeypatch):
    monkeypatch.setattr(gossip, "installed", lambda: False)
    rows = measured(command, "--cases", "mlp")["cases"][0]["rows"]
    assert rows[-1] == {"label": GOSSIPY, "note": "not installed"}


def test_a_person_gets_tables(command):
    outcome = command(*QUICK, "--cases", "mlp", "--out", "b")
    assert outcome.status == 0 and outcome.err == "gossamer: measuring mlp (1 of 1)\n"
    for text in ("times", "gossamer", "loop over modules", "RESULTS.md and the figures of this device are in b"):
        assert text in outcome.out


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--cases", "preresnt"), ("preresnt", "did you mean 'preresnet'")),
        (("--cases", ","), ("no case",)),
        (("--cases", "memory"), ("memory", "CUDA")),
        (("--device", "abacus"), ("abacus", "use cpu")),
        (("--precision", "int3"), ("int3", "bf16")),
        (("--steps", "0"), ("steps", "0")),
    ],
)
def test_what_cannot_be_measured_is_refused(command, tmp_path, arguments, words):
    line = command.refused("bench", "--device", "cpu", "--quick", *arguments)
    assert all(word in line for word in words)
    assert not list(tmp_path.iterdir())


def test_results_that_cannot_be_read_are_refused_before_anything_runs(command, tmp_path):
    (tmp_path / "results-x.json").write_text("{")
    assert "results-x.json" in command.refused(*QUICK, "--out", tmp_path)


def test_ctrl_c_keeps_the_cases_so_far(ctrl_c, command, monkeypatch, tmp_path):
    real = Workload.training

    def interrupted(self, *arguments, **options):
        if self.model.startswith("mlp"):
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, *arguments, **options)

    monkeypatch.setattr(Workload, "training", interrupted)
    outcome = command(*QUICK, "--cases", "thousand,mlp", "--json")
    assert outcome.status == 130 and "interrupted" in outcome.err
    assert [one["case"] for one in outcome.document["cases"]] == ["thousand"] and outcome.document["interrupted"]
    assert "thousand quick" in json.loads(path_of(tmp_path / "benchmarks", "cpu").read_text())["cases"]
