"""Who is first: the columns and the verdict of a comparison, from made-up summaries."""

from gossamer.run.target import parse_target, to_target
from gossamer.train.target_columns import time_columns, time_values, verdict


def summary(seconds, *, waiting=0.0, target="0.9"):
    reached = seconds is not None
    return {
        "target": target,
        "seconds_to_target": seconds,
        "steps_to_target": 10 if reached else None,
        "bytes_to_target": 3_000_000 if reached else None,
        "sim_seconds": 100.0,
        "goodput": 1 - waiting / 100,
        "waiting_seconds_per_agent": [waiting, waiting],
        "iterations": 50,
    }


def row(label, *seconds, waiting=0.0):
    summaries = [summary(each, waiting=waiting) for each in seconds]
    return {"label": label, "algorithm": label, "seeds": list(range(len(seconds))), **time_values(summaries)}


def cells(rows):
    columns = time_columns(rows)
    return [heading for heading, _ in columns], [[cell(each) for _, cell in columns] for each in rows]


def test_means_are_over_the_seeds_that_reached_the_target():
    headings, (both, one, none) = cells([row("a", 20.0, 30.0), row("b", 40.0, None), row("c", None, None)])
    assert headings == ["goodput %", "s to 0.9", "steps", "MB to it"]
    assert both == ["100", "25", "10", "3"]
    assert one == ["100", "40 (1 of 2)", "10", "3"]
    assert none == ["100", "not reached", "-", "-"]


def test_without_a_testbed_and_a_target_there_are_no_further_columns():
    plain = {"target": None, "goodput": None, "sim_seconds": None, "seeds": [0], "seconds_to_target": None}
    assert time_columns([plain]) == [] and verdict([plain]) == []


def test_the_verdict_names_the_first_its_lead_and_what_waiting_costs():
    lines = verdict([row("sync", 60.0, waiting=75.0), row("slow", 25.0), row("fast", 20.0), row("half", 10.0, None)])
    assert lines[0] == "fast is first to 0.9, after 20 s, 5 s (20 %) before slow."  # 'half' lacks a seed
    assert lines[1] == "The agents of sync wait 75 % of the time and take 3.00 times as long."
    assert verdict([row("a", 20.0), row("b", 20.0)]) == ["a is first to 0.9, after 20 s, as is b."]
    assert verdict([row("slow", None)]) == ["No algorithm reaches 0.9 within 100 s with every seed."]


def test_a_loss_is_reached_from_above_and_an_accuracy_from_below():
    rows = [
        {"accuracy": [0.4, 0.6], "loss": [2.0, 1.0], "step": 3, "bytes_sent": [1, 2], "sim_seconds": 1.0},
        {"accuracy": [0.8, 0.8], "loss": [0.5, 0.5], "step": 6, "bytes_sent": [5, 5], "sim_seconds": 2.0},
    ]
    assert to_target("0.5", rows)["seconds_to_target"] == 1.0  # the mean of the agents
    assert to_target("loss:1.4", rows) == {
        "target": "loss:1.4",
        "seconds_to_target": 2.0,
        "steps_to_target": 6,
        "bytes_to_target": 10,
    }
    assert to_target("0.9", rows)["steps_to_target"] is None
    assert parse_target("accuracy:0.5") == parse_target("0.5")
