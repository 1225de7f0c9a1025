"""What a run measures: bytes, ages, predictions, rows and their summary."""

import math

import numpy as np
import pytest

import gossamer as gm
from runs import SHORT, training

D = 650  # parameters of the linear model


@pytest.mark.parametrize(
    ("algorithm", "momentum", "vectors"),
    [
        ("sync", 0.9, 1),
        ("d-asgd", 0.9, 1),
        ("dm-asgd", 0.0, 1),
        ("p-asgd", 0.0, 2),
        ("pc-asgd", 0.0, 2),
        ("pc-asgd", 0.9, 3),
    ],
)
def test_bytes_sent_are_degree_times_message_times_steps(algorithm, momentum, vectors):
    net = gm.network("star:5", delay=3, clusters="2,3")
    result = gm.simulate(network=net, algorithm=algorithm, momentum=momentum, **SHORT)
    steps = result.summary["iterations"]
    assert result.summary["bytes_sent_per_agent"] == [degree * vectors * D * 4 * steps for degree in (4, 1, 1, 1, 1)]
    assert result.summary["bytes_sent"] == 8 * vectors * D * 4 * steps


def test_clipping_sends_on_links_inside_clusters_only():
    result = gm.simulate(network=gm.network("paper-1", 5), algorithm="c-asgd", dtype="float64", **SHORT)
    assert result.summary["bytes_sent_per_agent"] == [links * D * 8 * 24 for links in (2, 2, 2, 4, 4, 4, 4, 4)]


def test_bytes_grow_with_every_row():
    result = gm.simulate(algorithm="d-asgd", delay=5, eval_every=8, **SHORT)
    assert [row["step"] for row in result.history] == [0, 8, 16, 24]
    assert [sum(row["bytes_sent"]) for row in result.history] == [step * 56 * D * 4 for step in (0, 8, 16, 24)]


def test_late_messages_are_as_old_as_the_delay_after_the_start():
    run = training(epochs=4, delay="20", algorithm="d-asgd")
    late = run.network.links & ~run.network.same_cluster
    for step in range(48):
        ages = run.network.pattern.matrix(run.simulation.step().ages)
        assert set(ages[late].tolist()) == ({-1} if step < 20 else {20})
        assert set(ages[run.network.same_cluster].tolist()) == {0}


def test_the_mean_message_age_counts_current_messages_as_0():
    result = gm.simulate(algorithm="d-asgd", delay=20, epochs=4, eval_every=4, model="linear")
    share = 30 / 56  # of the 56 directed links, 30 are late
    before, after = result.history[1:6], result.history[6:]
    assert {row["message_age"] for row in before} == {0.0}
    assert [row["message_age"] for row in after] == pytest.approx([20 * share] * len(after))
    assert result.summary["message_age"] == pytest.approx(20 * 30 * 28 / (26 * 48 + 30 * 28))


@pytest.mark.parametrize(
    ("algorithm", "fraction"),
    [("pc-asgd/theta=0.3", 0.3), ("p-asgd", 1.0), ("c-asgd", 0.0), ("d-asgd", None), ("sync", None)],
)
def test_the_predict_fraction_is_theta(algorithm, fraction):
    summary = gm.simulate(algorithm=algorithm, delay=5, **SHORT).summary
    assert summary["predict_fraction"] == (fraction if fraction is None else pytest.approx(fraction))


def test_bernoulli_predicts_as_often_as_it_should():
    summary = gm.simulate(algorithm="pc-asgd/theta=bernoulli:0.3", delay=1, epochs=8, model="linear").summary
    assert summary["predict_fraction"] == pytest.approx(0.3, abs=4 * math.sqrt(0.21 / (8 * 95)))


def test_the_summary_is_that_of_the_last_row():
    result = gm.simulate(algorithm="pc-asgd/theta=pv", delay=5, **SHORT)
    last, summary = result.history[-1], result.summary
    assert summary["accuracy_mean"] == pytest.approx(np.mean(last["accuracy"]))
    assert summary["accuracy_std"] == pytest.approx(np.std(last["accuracy"]))
    assert summary["loss_mean"] == pytest.approx(np.mean(last["loss"]))
    assert summary["consensus_distance"] == pytest.approx(np.mean(last["consensus"]))
    assert summary["accuracy_best"] == max(np.mean(row["accuracy"]) for row in result.history)
    spread = (result.x - result.x.mean(dim=0)).norm(dim=1).mean()
    assert summary["consensus_distance"] == pytest.approx(float(spread), rel=1e-5)


@pytest.mark.parametrize(
    ("values", "steps"),
    [
        ({}, 24),
        ({"batch": 180}, 2),
        ({"batch": 10_000}, 2),
        ({"epoch_unit": "global"}, 180),
        ({"partition": "replicate"}, 180),
        ({"partition": "shares:1,1,1,1,1,1,1,100"}, 24),
    ],
)
def test_an_epoch_is_a_pass_over_the_mean_shard_or_over_all_data(values, steps):
    assert training(algorithm="sync", **values).steps == steps


def test_the_learning_rate_in_the_metrics_is_the_schedule():
    result = gm.simulate(algorithm="sync", schedule="step:0.5", lr=0.1, **SHORT)
    assert [row["lr"] for row in result.history] == pytest.approx([0.1, 0.01, 0.01])
