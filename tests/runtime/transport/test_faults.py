"""Messages that are lost, damaged or kept away by a partition, and messages that are asked for by iteration."""

import torch

from gossamer.runtime.message import checksum
from wires import MS, Agent

# Loss and damage.


def test_messages_are_lost_as_often_as_said_each_with_its_own_luck():
    agent = Agent("loss:0.2")
    seen = agent.run(2000)
    lost = agent.faulty.counts["lost"]
    arrived = [sequence for sequence in range(2000) if seen[sequence] == sequence]
    assert lost == 2000 - len(arrived) and abs(lost - 400) < 4.5 * (2000 * 0.2 * 0.8) ** 0.5
    assert all(seen[step] == max(s for s in arrived if s <= step) for step in range(20, 2000, 97))  # the one before
    pairs = sum(1 for s in range(1999) if seen[s] != s and seen[s + 1] != s + 1)
    assert abs(pairs - 80) < 50  # one after the other no more often than by chance
    assert agent.faulty.counts["corrupt"] == agent.faulty.counts["torn"] == 0


def test_a_message_is_judged_once_however_often_it_is_looked_at():
    agent = Agent("loss:0.5")
    for sequence in range(50):
        agent.send(sequence)
        seen = {agent.shows() for _ in range(10)} | {agent.faulty.at(0, sequence) and sequence}
        assert len(seen - {None}) <= 2
    assert agent.faulty.counts["lost"] < 50


def test_luck_is_a_function_of_the_seed_and_the_message_alone():
    first = Agent("loss:0.4").run(200)
    assert first == Agent("loss:0.4").run(200)
    late = Agent("loss:0.4", start=5 * 10**12)  # looks at other times, at every second message, at another incarnation
    for sequence in range(0, 200, 2):
        late.send(sequence, incarnation=99)
        assert (late.shows() == sequence) == (first[sequence] == sequence)
    assert first != Agent("loss:0.4", seed=1).run(200)
    assert first != Agent("loss:0.4").run(200, peer=2)
    assert first != Agent("loss:0.4", rank=3).run(200)
    twice = Agent("loss:0.4;loss:0.4")
    twice.run(1000)
    assert abs(twice.faulty.counts["lost"] - 640) < 80  # two clauses draw apart


def test_damaged_messages_are_counted_and_never_shown():
    agent, shown = Agent("corrupt:0.3"), []
    for sequence in range(1000):
        agent.send(sequence)
        letter = agent.faulty.latest(0)
        if letter is not None:
            shown.append(letter.stamp.sequence)
            original = agent.wire.letters[0][letter.stamp.sequence]
            assert torch.equal(letter.payload, original.payload) and letter.stamp == original.stamp
    damaged = agent.faulty.counts["corrupt"]
    assert damaged == 1000 - len(set(shown)) and abs(damaged - 300) < 4.5 * (1000 * 0.3 * 0.7) ** 0.5
    assert all(int(letter.payload[0]) == letter.stamp.sequence % 251 for letter in agent.wire.letters[0])


def test_damage_is_real_and_found_by_the_checksum(monkeypatch):
    checked = []
    monkeypatch.setattr(
        "gossamer.runtime.transport.faults.checksum", lambda payload: checked.append(payload.clone()) or 0
    )
    agent = Agent("corrupt:1")
    agent.send(5)
    letter = agent.faulty.latest(0)  # a checksum that sees nothing lets it through
    assert int((letter.payload != 5).sum()) == 1 and len(checked) == 2
    assert checksum(checked[0]) != checksum(checked[1])


# Partitions.


def test_a_partition_in_seconds_begins_and_heals():
    agent = Agent("partition:0/1,3@5s..8s")
    agent.send(0)
    assert agent.shown_at(4_999 * MS) == 0
    agent.send(1)
    agent.send(1, peer=2)
    agent.send(1, peer=3)
    assert agent.shown_at(5_000 * MS) == 0 and agent.shown_at(7_999 * MS) == 0
    assert agent.faulty.at(0, 1) is None and agent.faulty.at(0, 0) is not None
    assert agent.shows(2) == agent.shows(3) == 1  # named in no group, and in the same one
    agent.send(2)
    assert agent.shows() == 0
    assert agent.shown_at(8_000 * MS) == 2


def test_a_partition_in_iterations_begins_and_heals():
    agent = Agent("partition:0/1@3..6")
    assert agent.run(9) == [0, 1, 2, 2, 2, 2, 6, 7, 8]


def test_a_partition_without_an_end_is_for_ever():
    agent = Agent("partition:0/1/2")
    assert set(agent.run(50)) == {None}
    assert agent.shown_at(10**15) is None and agent.shows(3) is None
    agent.send(0, peer=3)
    assert agent.shows(3) == 0


def test_what_is_under_way_when_a_partition_begins_is_seen_after_it():
    agent = Agent("delay:2;partition:0/1@3..6")
    assert agent.run(12) == [None, None, 0, 0, 0, 0, 2, 2, 6, 7, 8, 9]


# One message by its iteration.


def test_the_last_messages_can_be_asked_for_by_iteration():
    agent = Agent("loss:0@0>1")
    agent.run(6)
    found = [agent.faulty.at(0, sequence) for sequence in range(7)]
    assert [letter and letter.stamp.sequence for letter in found] == [None, None, None, 3, 4, 5, None]


def test_a_message_that_was_never_the_newest_here_can_be_asked_for():
    agent = Agent("delay:50ms")
    for sequence in range(3):
        agent.send(sequence)
    assert agent.faulty.at(0, 1) is None
    agent.now += 50 * MS
    assert agent.faulty.at(0, 1).stamp.sequence == 1 and agent.shows() == 2
    assert agent.faulty.at(0, 1).stamp.sequence == 1


def test_a_lost_message_cannot_be_asked_for():
    agent = Agent("loss:0.5")
    seen = agent.run(40)
    again = Agent("loss:0.5")
    for sequence in range(40):
        again.send(sequence)
        assert (again.faulty.at(0, sequence) is not None) == (seen[sequence] == sequence)
    assert again.faulty.counts["lost"] == agent.faulty.counts["lost"]


def test_a_message_of_an_earlier_incarnation_cannot_be_asked_for():
    agent = Agent("loss:0")
    agent.send(4)
    assert agent.faulty.at(0, 4) is not None
    agent.send(3, incarnation=2)
    assert agent.shows() == 3 and agent.faulty.at(0, 4) is None
