"""What holds for every algorithm in a whole run: it resumes to the byte, its options can be given, it has a page."""

import dataclasses
import re

import pytest
import torch

import gossamer as gm
from gossamer.algorithms import algorithm_names, describe_algorithms
from gossamer.algorithms.base import Algorithm
from gossamer.run.settings import SETTING_NAMES
from pages import ROOT
from runs import begin, outcome, take_up

PAGES = ROOT / "docs" / "algorithms"
LATE = {"network": "complete:6", "clusters": "2,4", "delay": "uniform:1,8", "loss": 0.2}
LATE |= {"epochs": 2, "execution": "stacked"}  # 28 steps: more than the 20 between two averages of diloco


@pytest.mark.parametrize("name", algorithm_names())
def test_a_run_of_it_resumes_byte_for_byte(tmp_path, name):
    training, folder = begin(tmp_path / "whole", algorithm=name, **LATE)
    whole = training.run(folder)
    training, folder = begin(tmp_path / "pieces", algorithm=name, **LATE)
    for stop in (3, 17):
        training.run(folder, stop=lambda training=training, stop=stop: training.simulation.t >= stop)
        training, folder = take_up(tmp_path / "pieces")
    pieces = training.run(folder)
    assert whole.summary["status"] == "finished" and torch.equal(pieces.x, whole.x)
    assert outcome(tmp_path / "pieces") == outcome(tmp_path / "whole")


@pytest.mark.parametrize("rule", describe_algorithms(), ids=lambda rule: rule["name"])
def test_every_option_can_be_given_and_is_on_its_page(rule):
    assert not set(rule["options"]) & set(SETTING_NAMES)  # such a flag would set the run's own
    common = {field.name for field in dataclasses.fields(Algorithm)}
    shared = rule["name"].rpartition("-")[0]  # dc-asgd-a and -c have one page
    pages = [PAGES / f"{name}.md" for name in (rule["name"], shared)]
    text = next(page for page in pages if page.exists()).read_text(encoding="utf-8")
    # A page may send the reader on to another one for options that they share.
    text += "".join((PAGES / link).read_text(encoding="utf-8") for link in re.findall(r"\]\(([\w-]+\.md)\)", text))
    assert [name for name in rule["options"] if name not in common and not re.search(rf"`{name}\b", text)] == []


@pytest.mark.parametrize(("tau", "epochs"), [(5, 30), (20, 60)])
def test_d_asgd_learns_as_synchronous_sgd_at_its_rate_over_one_plus_tau_b(tau, epochs):
    net = gm.network("paper-1", tau)
    b = float(net.W_late.sum(dim=1).mean())
    lr, common = 0.1, {"epochs": epochs, "seed": 1, "eval_every": 10_000, "execution": "stacked"}
    late = gm.simulate("digits", "paper-1", "d-asgd", delay=tau, lr=lr, **common).summary
    slowed = gm.simulate("digits", "paper-1", "sync", delay=tau, lr=lr / (1 + tau * b), **common).summary
    full = gm.simulate("digits", "paper-1", "sync", delay=tau, lr=lr, **common).summary
    assert late["loss_mean"] == pytest.approx(slowed["loss_mean"], rel=0.1)
    assert abs(late["accuracy_mean"] - slowed["accuracy_mean"]) < 0.05
    assert full["loss_mean"] < 0.5 * late["loss_mean"]  # so that it is a statement
