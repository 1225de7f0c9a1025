"""Clients and servers that are broken or mean: they can neither read, nor inject, nor crash, nor stall."""

import contextlib
import socket

import hypothesis.strategies as st
import pytest
import zmq
from hypothesis import HealthCheck, given, settings

from gossamer.runtime.message import checksum, pack_header
from gossamer.runtime.transport import socket_receiver
from gossamer.runtime.transport.request_format import (
    Answer,
    Ask,
    Echo,
    Envelope,
    Probe,
    pack_reply,
    run_digest,
    unpack_reply,
    unpack_request,
)
from gossamer.runtime.transport.sockets import Sockets
from peers import NO_RUN, ask, has, payload, publish, raw, request, several, stamp
from waiting import until

LENGTH = 4_000
# Type checks in the agent's thread draw random numbers while Hypothesis, which minds, makes its examples.
others_draw = pytest.mark.filterwarnings("ignore:Do not use the `random` module")
SLOW = [HealthCheck.too_slow]  # other tests may have the processor


def answer(number, sequence=1, sender=0, agents=2, length=LENGTH, total=None):
    """An answer as agent 0 of 2 would give it, with one thing wrong if so wished."""
    body = payload(length, sequence)
    header = pack_header(stamp(sender, 100, sequence), agents, length, checksum(body) if total is None else total)
    return [pack_reply(Answer(number, header)), bytes(body.tolist())]


# A client that sends nonsense to an agent.

few_bytes = st.binary(max_size=120)


@st.composite
def requests_gone_wrong(draw):
    """A message that is no request: any bytes, a request with bytes too few or too many, or too many frames."""
    good = draw(st.sampled_from([request(ask()), request(Probe(5))]))
    cut = draw(st.integers(0, len(good) - 1))
    wrong = [good[:cut], good + draw(st.binary(min_size=1, max_size=9)), draw(few_bytes), b"GOSQ" + draw(few_bytes)]
    frames = st.lists(few_bytes, min_size=2, max_size=30)
    return draw(st.one_of(st.sampled_from(wrong).map(lambda frame: [frame]), frames))


def is_request(frames):
    try:
        return len(frames) == 1 and bool(unpack_request(frames[0]))
    except ValueError:
        return False


@others_draw
def test_nonsense_from_clients_is_counted_and_they_are_still_served():
    agent = Sockets(0, 2, 100)
    try:
        with raw(zmq.DEALER) as client:
            client.connect(agent.endpoint)

            @given(requests_gone_wrong())
            @settings(max_examples=300, suppress_health_check=SLOW)
            def check(frames):
                if is_request(frames):
                    return
                before = agent.counts["malformed"]
                client.send_multipart(frames)
                client.send(request(Probe(17)))  # is answered after the nonsense was read
                echo = unpack_reply(client.recv())
                assert isinstance(echo, Echo) and echo.sent == 17
                assert agent.counts["malformed"] == before + 1

            check()
        assert set(agent.counts) == {"malformed"}
    finally:
        agent.close()


@pytest.mark.parametrize(
    "wrong",
    [{"sender": 0}, {"sender": 2}, {"sender": 2**32 - 1}, {"receiver": 1}, {"run": run_digest("another")}],
    ids=["oneself", "one too many", "nobody", "to another", "another run"],
)
def test_a_request_of_or_for_somebody_else_is_not_answered(wrong):
    agent = Sockets(0, 2, 100)
    try:
        agent.open(LENGTH)
        publish(agent, 0, 100, 1, LENGTH)
        with raw(zmq.DEALER) as client:
            client.connect(agent.endpoint)
            client.send(request(ask(), **wrong))
            client.send(request(Probe(17)))
            assert isinstance(unpack_reply(client.recv()), Echo) and agent.counts["malformed"] == 1
            client.send(request(ask(number=8)))
            head, body = client.recv_multipart()
            assert unpack_reply(head).number == 8 and body == bytes(payload(LENGTH, 1).tolist())
    finally:
        agent.close()


def test_at_most_one_answer_is_on_its_way_to_a_client():
    agent = Sockets(0, 2, 100)
    try:
        agent.open(LENGTH)
        publish(agent, 0, 100, 1, LENGTH)
        with raw(zmq.DEALER) as client:
            client.connect(agent.endpoint)

            def numbers(settled, until_number):
                """Ask for anything over and over; return which requests were answered."""
                for number in range(settled + 1, until_number):
                    client.send(request(ask(number, settled)))
                client.send(request(Probe(number)))  # is answered after all requests were read
                replies = []
                while not any(isinstance(reply, Echo) for reply in replies) or client.poll(300):
                    replies.append(unpack_reply(client.recv_multipart()[0]))
                return [reply.number for reply in replies if isinstance(reply, Answer)]

            assert len(numbers(0, 6)) == 1  # however often it asked
            assert numbers(0, 9) == []
            assert len(numbers(8, 12)) == 1
    finally:
        agent.close()


@pytest.mark.parametrize("key", [None, bytes(32)])
def test_nonsense_below_zeromq_disturbs_nobody(key):
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    huge = b"\x06" + (2**62).to_bytes(8, "big")  # the length of a command that would never end
    nonsense = [b"", b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 200, greeting, greeting + huge, huge * 100]
    with several(2, LENGTH, key=key) as (agents, _):
        host, port = agents[0].endpoint.removeprefix("tcp://").split(":")
        with contextlib.ExitStack() as open_:
            for data in nonsense * 3:
                client = open_.enter_context(socket.create_connection((host, int(port)), timeout=3))
                with contextlib.suppress(ConnectionError):
                    client.sendall(data)
            for sequence in range(20):
                publish(agents[0], 0, 100, sequence, LENGTH)
                until(lambda: has(agents[1], 0, sequence))  # noqa: B023


def test_a_frame_that_is_too_long_ends_the_connection_only():
    with several(2, LENGTH) as (agents, _), raw(zmq.DEALER) as client:
        client.connect(agents[0].endpoint)
        client.send(bytes(1_000_000))
        publish(agents[0], 0, 100, 1, LENGTH)
        until(lambda: has(agents[1], 0, 1))

        def probed():
            """Probe over the next connection, as soon as ZeroMQ knows that it needs one: till then, probes are lost."""
            client.send(request(Probe(3)))
            return client.poll(200)

        until(probed)
        assert unpack_reply(client.recv()).sent == 3
        assert not agents[0].counts


# A server that sends nonsense to an agent, which takes it for agent 0.


@contextlib.contextmanager
def asked_by_agent():
    """Yield agent 1, and a server in the place of agent 0, of which nothing is right yet."""
    with raw(zmq.ROUTER) as server:
        port = server.bind_to_random_port("tcp://127.0.0.1")
        agent = Sockets(1, 2, 100, where=lambda peer: f"tcp://127.0.0.1:{port}")
        try:
            agent.open(LENGTH)
            yield agent, server
        finally:
            agent.close()


def next_ask(server):
    """Return who asks, and what."""
    while True:
        connection, frame = server.recv_multipart()
        envelope, found = unpack_request(frame)
        assert envelope == Envelope(NO_RUN, 1, 0)
        if isinstance(found, Ask):
            return connection, found


@st.composite
def replies_gone_wrong(draw, number):
    head, body = answer(number)
    cut = draw(st.integers(0, len(head) - 1))
    wrong = [
        [draw(few_bytes)],
        [head],
        [head[:cut], body],
        [head + b"0", body],
        [b"GOSR" + draw(few_bytes), body],
        [head, body[:-1]],
        [head, body + b"0"],
        [head, body, b""],
        [pack_reply(Echo(1, 2, 3, 4)), b""],
        [pack_reply(Echo(1, 2, 3, 4)) + b"0"],
        answer(number, sender=1),
        answer(number, agents=3),
        answer(number, length=LENGTH - 8),
        draw(st.lists(few_bytes, min_size=3, max_size=20)),
    ]
    return draw(st.sampled_from(wrong))


@others_draw
def test_nonsense_from_servers_is_counted_and_nothing_of_it_is_held(monkeypatch):
    monkeypatch.setattr(socket_receiver, "AFTER_MALFORMED", 0.0)
    monkeypatch.setattr(socket_receiver, "ASK_AGAIN", 60.0)  # one request for each reply, however slow this is
    with asked_by_agent() as (agent, server):
        state = [next_ask(server)]

        @given(st.data())
        @settings(max_examples=200, suppress_health_check=SLOW)
        def check(data):
            connection, asked = state[-1]
            before = agent.counts["malformed"]
            server.send_multipart([connection, *data.draw(replies_gone_wrong(asked.number))])
            state[:] = [next_ask(server)]
            assert agent.counts["malformed"] == before + 1
            assert state[-1][1].number > state[-1][1].settled == asked.number and state[-1][1].newer_than is None

        check()
        assert agent.latest(0) is None and set(agent.counts) == {"malformed"}
        connection, asked = state[-1]
        server.send_multipart([connection, *answer(asked.number, sequence=6)])
        until(lambda: has(agent, 0, 6))


def test_what_is_corrupt_stale_or_not_asked_for_is_counted_and_not_held(monkeypatch):
    monkeypatch.setattr(socket_receiver, "ASK_AGAIN", 60.0)  # each request is asked once, however slow this is
    with asked_by_agent() as (agent, server):
        connection, asked = next_ask(server)
        for number in (0, asked.number + 1, 2**64 - 1):
            server.send_multipart([connection, *answer(number, sequence=50)])
        until(lambda: agent.counts["stale"] == 3)
        server.send_multipart([connection, *answer(asked.number, sequence=50, total=3)])
        until(lambda: agent.counts["corrupt"] == 1)
        connection, asked = next_ask(server)
        server.send_multipart([connection, *answer(asked.number, sequence=6)])
        connection, asked = next_ask(server)
        assert has(agent, 0, 6) and asked.newer_than == (100, 6)
        server.send_multipart([connection, *answer(asked.number, sequence=6)])
        until(lambda: agent.counts["stale"] == 4)
        assert has(agent, 0, 6) and agent.counts["malformed"] == 0


def test_an_answer_that_was_slow_is_still_taken(monkeypatch):
    monkeypatch.setattr(socket_receiver, "ASK_AGAIN", 0.2)
    with asked_by_agent() as (agent, server):
        connection, first = next_ask(server)
        _, second = next_ask(server)
        assert second.number > first.number and second.settled == first.settled
        server.send_multipart([connection, *answer(first.number, sequence=6)])
        until(lambda: has(agent, 0, 6))
        while (third := next_ask(server)[1]).settled < first.number:
            pass
        assert third.newer_than == (100, 6)
        server.send_multipart([connection, *answer(second.number, sequence=7)])
        until(lambda: has(agent, 0, 7))
        assert not agent.counts


def test_a_message_that_is_too_long_is_never_held(monkeypatch):
    monkeypatch.setattr(socket_receiver, "UNCONNECTED", 0.2)  # ZeroMQ gives up on such a server
    monkeypatch.setattr(socket_receiver, "ASK_AGAIN", 0.5)
    with asked_by_agent() as (agent, server):
        connection, asked = next_ask(server)
        head, body = answer(asked.number)
        server.send_multipart([connection, head, body + bytes(2_000)])
        connection_after = connection
        while connection_after == connection:  # it may have asked once more before the answer came
            connection_after, asked = next_ask(server)
        assert agent.latest(0) is None
        server.send_multipart([connection_after, *answer(asked.number)])
        until(lambda: has(agent, 0, 1))
