import threading
import time

import pytest
import torch
import zmq

from gossamer.errors import UserError
from gossamer.runtime.transport import sockets
from gossamer.runtime.transport.base import KEPT
from gossamer.runtime.transport.socket_sender import SocketSender
from gossamer.runtime.transport.sockets import Sockets
from peers import has, payload, publish, several, stamp
from waiting import until

LENGTH = 4_000


def sequences(agent, peer, newest):
    return [n for n in range(newest + 1) if agent.at(peer, n) is not None]


# In one process.


@pytest.mark.parametrize("length", [0, 1, 4_000, 300_001])
def test_a_message_arrives_as_it_was_sent(length):
    with several(2, length) as (agents, _):
        assert agents[0].latest(1) is None and agents[0].at(1, 0) is None
        for sequence in range(4):
            for rank in range(2):
                publish(agents[rank], rank, 100, sequence, length)
            for rank in range(2):
                until(lambda: has(agents[rank], 1 - rank, sequence))  # noqa: B023
                letter = agents[rank].latest(1 - rank)
                assert letter.stamp == stamp(1 - rank, 100, sequence)
                assert letter.payload.dtype == torch.uint8 and torch.equal(letter.payload, payload(length, sequence))
                assert letter.intact() and agents[rank].latest(1 - rank) is letter
        assert not agents[0].counts and not agents[1].counts


def test_parts_of_all_kinds_lie_one_after_another_and_are_copied():
    parts = [torch.randn(3, 5), torch.tensor(2.5, dtype=torch.bfloat16), torch.tensor([True, False]), torch.empty(0)]
    parts += [torch.arange(4), torch.randn(2, requires_grad=True)]
    expected = b"".join(bytes(part.detach().reshape(-1).view(torch.uint8).tolist()) for part in parts)
    with several(2, len(expected)) as (agents, _):
        agents[0].publish(stamp(0, 100, 1), parts)
        parts[0].zero_()
        until(lambda: has(agents[1], 0, 1))
        assert bytes(agents[1].latest(0).payload.tolist()) == expected


def test_a_payload_of_another_length_is_a_mistake():
    with several(2, LENGTH) as (agents, _), pytest.raises(ValueError, match="3999 bytes"):
        publish(agents[0], 0, 100, 0, LENGTH - 1)
    with several(2, LENGTH, open_=False) as (agents, _), pytest.raises(ValueError, match="open"):
        publish(agents[0], 0, 100, 0, LENGTH)


@pytest.mark.parametrize("zeromq", ["says when it has sent", "never says"])
def test_a_message_leaves_when_it_is_published_and_not_at_the_next_tick(zeromq, monkeypatch):
    monkeypatch.setattr(sockets, "TICK", 600.0)
    if zeromq == "never says":  # the receiver may ask for the next message before it does
        monkeypatch.setattr(zmq.MessageTracker, "done", False)
    where = {}
    agents = [Sockets(rank, 2, 100, where=where.get) for rank in range(2)]
    try:
        where.update({rank: agent.endpoint for rank, agent in enumerate(agents)})
        for agent in agents:
            agent.open(LENGTH)
        for sequence in range(20):
            publish(agents[0], 0, 100, sequence, LENGTH)
            until(lambda: has(agents[1], 0, sequence))  # noqa: B023
        assert len(agents[0]._sent.buffers) <= 1 + KEPT + 1
    finally:
        for agent in agents:
            agent.close()


def test_the_newest_wins_when_the_receiver_was_away():
    with several(2, LENGTH, known=False) as (agents, where):
        for sequence in range(10):
            publish(agents[0], 0, 100, sequence, LENGTH)
        where[0] = agents[0].endpoint
        letter = until(lambda: agents[1].latest(0))
        assert letter.stamp.sequence == 9 and sequences(agents[1], 0, 9) == [9]


def test_in_order_the_kept_ones_come_oldest_first_and_the_last_are_held():
    with several(2, LENGTH, known=False, in_order=True) as (agents, where):
        for sequence in range(10):
            publish(agents[0], 0, 100, sequence, LENGTH)
        where[0] = agents[0].endpoint
        until(lambda: has(agents[1], 0, 9))
        kept = [7, 8, 9]
        assert len(kept) == KEPT and sequences(agents[1], 0, 9) == kept
        for sequence in kept:
            assert torch.equal(agents[1].at(0, sequence).payload, payload(LENGTH, sequence))
        publish(agents[0], 0, 100, 10, LENGTH)
        until(lambda: has(agents[1], 0, 10))
        assert sequences(agents[1], 0, 10) == [8, 9, 10]


def test_in_lock_step_no_iteration_is_missed():
    with several(3, LENGTH, in_order=True) as (agents, _):
        for sequence in range(60):
            for rank, agent in enumerate(agents):
                publish(agent, rank, 100, sequence, LENGTH)
            for rank, agent in enumerate(agents):
                for peer in {0, 1, 2} - {rank}:
                    letter = until(lambda: agent.at(peer, sequence))  # noqa: B023
                    assert torch.equal(letter.payload, payload(LENGTH, sequence))
                    if sequence == 20 * rank:
                        time.sleep(0.05)  # each is late once, and the others may run ahead by one
        assert all(not agent.counts for agent in agents)


def test_an_agent_that_comes_back_elsewhere_is_followed_and_its_past_forgotten():
    with several(2, LENGTH) as (agents, where):
        publish(agents[0], 0, 100, 50, LENGTH)
        until(lambda: has(agents[1], 0, 50))
        agents[0].close()
        again = Sockets(0, 2, 101, where=where.get)
        try:
            again.open(LENGTH)
            publish(again, 0, 101, 3, LENGTH)
            assert has(agents[1], 0, 50) and agents[1].at(0, 50) is not None  # until something newer comes
            where[0] = again.endpoint
            until(lambda: has(agents[1], 0, 3, incarnation=101))
            assert sequences(agents[1], 0, 50) == [3]
        finally:
            again.close()


def test_an_agent_that_comes_back_at_the_same_place_is_found_there():
    with several(2, LENGTH) as (agents, where):
        publish(agents[0], 0, 100, 50, LENGTH)
        until(lambda: has(agents[1], 0, 50))
        agents[0].close()
        port = int(where[0].rpartition(":")[2])
        again = until(lambda: bound_to(port))
        try:
            again.open(LENGTH)
            publish(again, 0, 101, 3, LENGTH)
            until(lambda: has(agents[1], 0, 3, incarnation=101))
        finally:
            again.close()


def bound_to(port):
    """Agent 0 again, at this very port."""

    class There(Sockets):
        def _bind(self, host):
            self._socket.bind(f"tcp://{host}:{port}")
            return f"tcp://{host}:{port}"

    return There(0, 2, 101)


def test_a_message_of_an_older_incarnation_is_not_taken():
    with several(2, LENGTH) as (agents, where):
        publish(agents[0], 0, 100, 5, LENGTH)
        until(lambda: has(agents[1], 0, 5))
        old = Sockets(0, 2, 99)
        try:
            old.open(LENGTH)
            publish(old, 0, 99, 1_000, LENGTH)
            where[0] = old.endpoint
            until(lambda: agents[1]._peers[0].endpoint == old.endpoint and agents[1].offset(0) is not None)
            assert has(agents[1], 0, 5, incarnation=100)
        finally:
            old.close()


def test_a_peer_that_is_nowhere_any_more_is_not_asked():
    with several(2, LENGTH) as (agents, where):
        publish(agents[0], 0, 100, 1, LENGTH)
        until(lambda: has(agents[1], 0, 1))
        del where[0]
        until(lambda: agents[1]._peers[0].socket is None)
        publish(agents[0], 0, 100, 2, LENGTH)
        assert has(agents[1], 0, 1)
        where[0] = agents[0].endpoint
        until(lambda: has(agents[1], 0, 2))


def test_a_fault_in_where_is_counted_and_survived(caplog):
    broken = [True]

    def where(peer):
        if broken:
            raise RuntimeError("no book")
        return other.endpoint

    other, agent = Sockets(0, 2, 100), Sockets(1, 2, 100, where=where)
    try:
        for one in (other, agent):
            one.open(LENGTH)
        publish(other, 0, 100, 4, LENGTH)
        until(lambda: agent.counts["failed"])
        assert agent.latest(0) is None
        broken.clear()
        until(lambda: has(agent, 0, 4))
        assert "no book" in caplog.text
    finally:
        other.close()
        agent.close()


# Clocks.


def test_a_shifted_clock_is_found_to_within_the_round_trip():
    shift = 10**12  # more than any round trip
    where = {}
    begun = time.monotonic_ns()
    here = Sockets(0, 2, 100, where=where.get)
    ahead = Sockets(1, 2, 100, where=where.get, clock=lambda: time.monotonic_ns() + shift)
    try:
        for agent in (here, ahead):
            agent.open(LENGTH)
        assert here.offset(1) is None
        where.update({0: here.endpoint, 1: ahead.endpoint})
        until(lambda: here.offset(1) is not None and ahead.offset(0) is not None)
        round_trip = time.monotonic_ns() - begun  # no probe can have taken longer
        assert abs(here.offset(1) + shift) <= round_trip < shift
        assert abs(ahead.offset(0) - shift) <= round_trip
    finally:
        here.close()
        ahead.close()


# What is refused.


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1"])
def test_without_a_key_only_loopback_is_listened_on(address):
    with pytest.raises(UserError, match=f"'{address}' is not on this host alone.*only 127.0.0.1.*GOSSAMER_KEY_FILE"):
        Sockets(0, 2, 1, address)


@pytest.mark.parametrize(("address", "why"), [("0.0.0.0", "everywhere"), ("192.0.2.1", "listen"), ("a b", "find")])
def test_an_address_that_is_not_one_of_this_host_is_refused(address, why):
    with pytest.raises(UserError, match=why) as error:
        Sockets(0, 2, 1, address, key=bytes(32))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("place", ["tcp://192.0.2.1:9", "tcp://localhost.example.org:9", "ipc:///tmp/x", "nonsense", 7])
def test_without_a_key_nothing_but_loopback_is_connected_to(place):
    agent = Sockets(0, 2, 1, where=lambda peer: place)
    try:
        agent.open(LENGTH)
        until(lambda: agent.counts["refused"])
        assert agent._peers[1].socket is None
    finally:
        agent.close()


def test_closing_takes_no_time_and_leaves_no_thread():
    before = set(threading.enumerate())
    with several(4, LENGTH, key=bytes(32)) as (agents, _):
        publish(agents[0], 0, 100, 1, LENGTH)
        until(lambda: all(has(agent, 0, 1) for agent in agents[1:]))
        begun = time.monotonic()
    assert time.monotonic() - begun < 8  # not as long as messages to the dead would be kept
    publish(agents[0], 0, 100, 2, LENGTH)  # harmless, if useless
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("gossamer")]


def slow_to_answer(monkeypatch, seconds):
    answer = SocketSender.answer

    def late(self, outbox):
        time.sleep(seconds)
        answer(self, outbox)

    monkeypatch.setattr(SocketSender, "answer", late)


def test_who_flushes_before_it_leaves_leaves_its_last_message(monkeypatch):
    with several(3, LENGTH) as (agents, _):
        publish(agents[0], 0, 100, 0, LENGTH)
        for rank in (1, 2):
            until(lambda: has(agents[rank], 0, 0))  # noqa: B023
        slow_to_answer(monkeypatch, 0.2)
        for sequence in range(1, 4):  # more than one that has not left
            publish(agents[0], 0, 100, sequence, LENGTH)
        agents[0].flush(30.0)
        agents[0].close()
        assert all(has(agents[rank], 0, 3) for rank in (1, 2))


def test_a_flush_does_not_wait_for_who_has_left_and_not_for_ever():
    with several(2, LENGTH) as (agents, _):
        agents[0].flush(8.0)  # nothing was published
        publish(agents[0], 0, 100, 0, LENGTH)
        until(lambda: has(agents[1], 0, 0))
        agents[1].close()
        publish(agents[0], 0, 100, 1, LENGTH)
        begun = time.monotonic()
        agents[0].flush(60.0)
        assert time.monotonic() - begun < 40
    with several(2, LENGTH) as (agents, _):
        publish(agents[0], 0, 100, 0, LENGTH)
        until(lambda: has(agents[1], 0, 0))
        agents[1]._peers[0].send_due = lambda now: False  # it takes what comes and asks for no more
        publish(agents[0], 0, 100, 1, LENGTH)
        begun = time.monotonic()
        agents[0].flush(0.3)
        assert 0.3 <= time.monotonic() - begun < 10
