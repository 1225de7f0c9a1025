"""Agents as processes do what the testbed says: iterations, ages, the end, and what a recorded run says of itself."""

import statistics

import pytest

from sleeping import RULES, compare

pytestmark = pytest.mark.alone  # its agents sleep for scripted times


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    return {one.rule: one for one in compare(tmp_path_factory.mktemp("sleeping"), seconds=4.5)}


def near(found, wanted, least):
    """Say whether numbers agree within 5 %, or the least difference that can be told."""
    return all(abs(a - b) <= max(0.05 * b, least) for a, b in zip(found, wanted, strict=True))


def ages(ran):
    return [age for of_agent in ran.mean_ages for age in of_agent]


@pytest.mark.parametrize("rule", RULES)
def test_processes_end_as_many_iterations_as_the_testbed_says_with_messages_as_old(compared, rule):
    one = compared[rule]
    assert near(one.measured.counts, one.predicted.counts, least=1)
    assert near(one.ends, one.predicted_ends, least=0)
    assert near(ages(one.measured), ages(one.predicted), least=0.15)  # 3 s are few messages for a single link
    assert near([statistics.fmean(ages(one.measured))], [statistics.fmean(ages(one.predicted))], least=0)


@pytest.mark.parametrize("rule", RULES)
def test_a_recorded_run_is_replayed_with_unequal_counts_and_ages(compared, rule):
    one = compared[rule]
    assert near(one.replayed.counts, one.measured.counts, least=1)
    assert near(ages(one.replayed), ages(one.measured), least=0.15)
    if rule != "sync":
        assert max(one.replayed.counts) > 2 * min(one.replayed.counts)
