"""Faults as text: what can be written, what it means, and what is refused."""

import pytest
import torch

from gossamer.errors import UserError
from gossamer.runtime.message import Stamp
from gossamer.runtime.transport.fault_spec import Chance, FaultDelay, FaultyLinks, Halt, Partition, Span, parse_faults
from wires import AGENTS, Agent

MS = 1_000_000  # nanoseconds


def between(*groups, one_way=False):
    return FaultyLinks(tuple(frozenset(group) for group in groups), one_way)


CLAUSES = {
    "delay:50ms": FaultDelay(Span(50 * MS, 50 * MS, True), None),
    "delay:2s": FaultDelay(Span(2000 * MS, 2000 * MS, True), None),
    "delay:0.25ms": FaultDelay(Span(MS // 4, MS // 4, True), None),
    "delay:10ms..80ms": FaultDelay(Span(10 * MS, 80 * MS, True), None),
    "delay:500ms..2s@0>1": FaultDelay(Span(500 * MS, 2000 * MS, True), between([0], [1], one_way=True)),
    "delay:20": FaultDelay(Span(20, 20, False), None),
    "delay:0": FaultDelay(Span(0, 0, False), None),
    "delay:5..60@0/1": FaultDelay(Span(5, 60, False), between([0], [1])),
    "loss:0.1": Chance("loss", 0.1, None),
    "loss:1": Chance("loss", 1.0, None),
    "loss:0@0,1>2,3": Chance("loss", 0.0, between([0, 1], [2, 3], one_way=True)),
    "loss:0.1@1-0": Chance("loss", 0.1, between([1], [0])),
    "corrupt:0.01@0,1/2/3": Chance("corrupt", 0.01, between([0, 1], [2], [3])),
    "partition:0,1/2,3": Partition(between([0, 1], [2, 3]), None),
    "partition:3,2/1,0@1s..1500ms": Partition(between([2, 3], [0, 1]), Span(1000 * MS, 1500 * MS, True)),
    "partition:0/1/2@100..200": Partition(between([0], [1], [2]), Span(100, 200, False)),
    "kill:2@100": Halt(2, 100, None),
    "stop:1@100,5s": Halt(1, 100, 5000 * MS),
    "stop:0@0,300ms": Halt(0, 0, 300 * MS),
}


@pytest.mark.parametrize("text", CLAUSES)
def test_a_clause_is_read_as_it_is_written(text):
    assert parse_faults(text, AGENTS) == (CLAUSES[text],)


def test_clauses_stand_between_semicolons_and_spaces_do_not_count():
    assert parse_faults(";".join(CLAUSES), AGENTS) == tuple(CLAUSES.values())
    assert parse_faults(" loss : 0.10 ; delay:20 ;; ", AGENTS) == (CLAUSES["loss:0.1"], CLAUSES["delay:20"])


@pytest.mark.parametrize("text", ["", "  ", ";", " ; "])
def test_no_text_is_no_faults(text):
    assert parse_faults(text, AGENTS) == ()


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
