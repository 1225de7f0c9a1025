"""Every rule trains as it always did: its numbers are frozen. A change of any of them is a change of behaviour."""

import json

import pytest
import torch

import golden
from gossamer.algorithms import algorithm_names

FROZEN = json.loads(golden.FILE.read_text())


def test_every_rule_is_frozen():
    assert list(FROZEN) == golden.RULES and set(algorithm_names()) <= set(FROZEN)


@pytest.mark.parametrize("rule", golden.RULES)
def test_a_rule_trains_as_it_always_did(rule):
    # Not to the bit: processors and their libraries add in different orders, which moves the last of 16 digits.
    torch.testing.assert_close(golden.trajectory(rule), FROZEN[rule], rtol=1e-12, atol=1e-12)


def test_no_two_rules_end_alike():
    ends = [str(numbers["absolute_sums"]) for numbers in FROZEN.values()]
    assert len(set(ends)) == len(ends)
