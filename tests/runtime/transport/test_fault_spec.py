"""Faults as text: what can be written, what it means, and what is refused."""

import pytest
import torch

from gossamer.errors import UserError
from gossamer.runtime.message import Stamp
from gossamer.runtime.transport.fault_spec import Faults, parse_faults
from wires import AGENTS, Agent

CLAUSES = [
    "delay:50ms",
    "delay:2s",
    "delay:0.25ms",
    "delay:10ms..80ms",
    "delay:500ms..2s@0>1",
    "delay:20",
    "delay:0",
    "delay:5..60@0/1",
    "loss:0.1",
    "loss:1",
    "loss:0@0,1>2,3",
    "corrupt:0.01@0,1/2/3",
    "partition:0,1/2,3",
    "partition:0,1/2,3@5s..8s",
    "partition:0/1/2@100..200",
    "kill:2@100",
    "stop:1@100,5s",
    "stop:0@0,300ms",
]


@pytest.mark.parametrize("text", [*CLAUSES, ";".join(CLAUSES)])
def test_faults_are_made_again_from_their_text(text):
    faults = parse_faults(text, AGENTS)
    assert faults and faults.text == text and parse_faults(faults.text, AGENTS) == faults


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (" loss : 0.10 ; delay:0.2s ;; ", "loss:0.1;delay:200ms"),
        ("loss:0.1@1-0", "loss:0.1@1/0"),
        ("partition:3,2/1,0@1s..1500ms", "partition:2,3/0,1@1s..1500ms"),
    ],
)
def test_the_same_faults_can_be_written_in_more_than_one_way(text, same):
    assert parse_faults(text, AGENTS) == parse_faults(same, AGENTS) and parse_faults(text, AGENTS).text == same


@pytest.mark.parametrize("text", ["", "  ", ";", " ; "])
def test_no_text_is_no_faults(text):
    assert not parse_faults(text, AGENTS) and parse_faults(text, AGENTS) == Faults()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("lost:0.1", "unknown fault 'lost'; did you mean 'loss'?"),
        ("loss", "cannot read fault 'loss'; write it like loss:0.1"),
        ("loss:often", "the probability in fault 'loss:often' must be a number, got 'often'"),
        ("loss:1.5", "must be between 0 and 1, got 1.5; try 0.1"),
        ("loss:nan", "must be between 0 and 1, got nan"),
        ("corrupt:-1", "must be between 0 and 1, got -1"),
        ("loss:0.1@", "cannot read fault 'loss:0.1@'; write it like loss:0.1"),
        ("loss:0.1@2", "'2' in fault 'loss:0.1@2' names no links; write them like 0>1, 0-1 or 0,1/2,3"),
        ("loss:0.1@0>1>2", "names no links"),
        ("loss:0.1@0-x", "cannot read fault"),
        ("loss:0.1@0,1/1,2", "has an agent on both sides; name each agent once"),
        ("loss:0.1@0>4", "names agent 4, but the run has 4; use 0 to 3"),
        ("delay:1.5", "cannot read fault 'delay:1.5'; write it like delay:10ms..80ms"),
        ("delay:-3", "cannot read fault"),
        ("delay:5h", "cannot read fault"),
        ("delay:1e3ms", "cannot read fault"),
        ("delay:", "cannot read fault"),
        ("delay:10ms..20", "mixes a time and iterations"),
        ("delay:80ms..10ms", "goes from 80ms to 10ms, which is less; write 10ms..80ms"),
        ("partition:0,1", "names no links"),
        ("partition:0>1", "cannot read fault 'partition:0>1'; write it like partition:0,1/2,3@5s..8s"),
        ("partition:0/1@5s", "ends when it begins"),
        ("kill:2", "cannot read fault 'kill:2'; write it like kill:2@100"),
        ("kill:9@100", "names agent 9"),
        ("kill:2@5s", "must name an iteration, got 5s"),
        ("kill:2@100,5s", "cannot read fault"),
        ("stop:1@100", "cannot read fault 'stop:1@100'; write it like stop:1@100,5s"),
        ("stop:1@100,5", "must be a time above 0, got 5; write it like 5s or 300ms"),
        ("stop:1@100,0s", "must be a time above 0"),
    ],
)
def test_a_clause_that_cannot_be_read_is_refused_in_one_line(text, told):
    with pytest.raises(UserError) as error:
        parse_faults(f"delay:5;{text}", AGENTS)
    assert told in str(error.value) and "\n" not in str(error.value)


# Links.


@pytest.mark.parametrize(
    ("where", "pairs"),
    [
        ("", {(s, r) for s in range(4) for r in range(4)}),
        ("@0>1", {(0, 1)}),
        ("@0-1", {(0, 1), (1, 0)}),
        ("@0,1>2", {(0, 2), (1, 2)}),
        ("@0,1/2", {(0, 2), (1, 2), (2, 0), (2, 1)}),
        ("@0/1/2", {(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)}),
    ],
)
def test_a_clause_is_for_the_links_that_it_names(where, pairs):
    for sender in range(4):
        for receiver in range(4):
            agent = Agent(f"loss:1{where}", rank=receiver)
            agent.send(0, sender)
            assert (agent.shows(sender) is None) == ((sender, receiver) in pairs)


def test_links_without_faults_are_not_touched():
    agent = Agent("delay:5s@0>1;loss:1@0>2;partition:0/3;kill:3@0")
    agent.send(4, peer=2)
    agent.faulty.tick(0)
    assert agent.faulty.latest(2) is agent.wire.latest(2) and agent.faulty.at(2, 4) is agent.wire.at(2, 4)
    assert agent.faulty.latest(3) is None and agent.faulty.at(3, 0) is None


def test_all_else_goes_to_the_transport_below():
    agent = Agent("delay:5s", offset=17)
    stamp, parts = Stamp(1, 1, 0, 0, 0), [torch.zeros(3)]
    agent.faulty.open(12)
    agent.faulty.publish(stamp, parts)
    agent.faulty.tick(3)
    assert (agent.wire.opened, agent.wire.published, agent.wire.ticks) == (12, [(stamp, parts)], [3])
    assert agent.faulty.offset(0) == 17
    agent.wire.counts["malformed"] += 2
    assert agent.faulty.counts["malformed"] == 2
    agent.faulty.close()
    assert agent.wire.closed
