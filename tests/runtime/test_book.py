import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from torch.distributed import TCPStore

from gossamer.errors import UserError
from gossamer.runtime.book.address_book import PATIENCE, Book, _BookLine, serve_book
from gossamer.runtime.book.keys import MOST_BYTES, BookEntry, seal
from waiting import until

KEY = bytes(range(32))
ENDS = 60  # seconds for a process of the book to end


@pytest.fixture
def server():
    served = serve_book("127.0.0.1")
    yield served
    served.close()


def free_port():
    """A port that stays free until it is served: below those that Linux gives to anybody, above those of Slurm."""
    while True:
        port = 30_000 + secrets.randbelow(2_700)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@pytest.fixture
def open_book():
    """Open books that are closed after the test."""
    books = []

    def open_(endpoint, rank=0, run="a-run", key=KEY):
        books.append(Book(endpoint, run, rank, key))
        return books[-1]

    yield open_
    for book in books:
        book.close()


class Process:
    """The book in a process of its own, as launchers run it."""

    def __init__(self, port=0, address="127.0.0.1", **environment):
        known = {name: value for name, value in os.environ.items() if not name.startswith("GOSSAMER_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gossamer.runtime.book", address, str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**known, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        )
        self.endpoint = self.process.stdout.readline().strip()

    def end(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=ENDS)
        return self.process.returncode, out, err

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end()


def lost(book):
    """Whether a book was lost, or left for another connection, as after a machine that stood still, and then lost."""
    return book.counts["lost"] or book.counts["stuck"]


def raw_store(endpoint):
    host, port = endpoint.split(":")
    return TCPStore(host, int(port), is_master=False, wait_for_workers=False)


# The book.


def test_what_one_posts_the_others_read(server, open_book):
    one, other = open_book(server.endpoint, 0), open_book(server.endpoint, 1)
    other.watch("address/0")
    assert other.read("address/0") is None
    one.post("address/0", {"port": 1})
    assert until(lambda: other.read("address/0")) == {"port": 1}
    one.post("status/0", {"step": 3})
    one.post("address/0", {"port": 2})
    until(lambda: other.read("address/0") == {"port": 2})
    assert other.read("status/0") is None  # nobody watches it
    other.read("address/0")["port"] = 7
    assert other.read("address/0") == {"port": 2}
    until(lambda: one.connected and other.connected)
    assert not other.counts["forged"] and not other.counts["old"]


def test_many_entries_of_which_some_are_missing(server, open_book):
    one, other = open_book(server.endpoint, 0), open_book(server.endpoint, 1)
    for rank in range(40):
        other.watch(f"ages/{rank}")
    for rank in range(0, 40, 2):
        one.post(f"ages/{rank}", {"rank": rank})
    until(lambda: all(other.read(f"ages/{rank}") == {"rank": rank} for rank in range(0, 40, 2)))
    assert other.read("ages/1") is None
    one.post("ages/1", {"rank": 1})
    assert until(lambda: other.read("ages/1")) == {"rank": 1}


def test_runs_that_share_a_book_do_not_meet(server, open_book):
    one, other = open_book(server.endpoint), open_book(server.endpoint, run="another")
    for book in (one, other):
        book.watch("address/0")
    one.post("address/0", {"port": 1})
    until(lambda: one.read("address/0"))
    other.post("address/0", {"port": 2})
    until(lambda: other.read("address/0"))
    assert (one.read("address/0"), other.read("address/0")) == ({"port": 1}, {"port": 2})


def test_what_is_posted_while_the_line_is_posting_arrives_although_the_book_is_closed_at_once(
    server, open_book, monkeypatch
):
    """The line looks at what there is, something is posted and the book closed, and then it goes on."""
    push, posting, closed = _BookLine._push, threading.Event(), threading.Event()

    def slowly(line, store, sent):
        push(line, store, sent)
        if not posting.is_set() and "early" in sent:
            posting.set()
            closed.wait(5)

    monkeypatch.setattr(_BookLine, "_push", slowly)
    one = open_book(server.endpoint, 0)
    one.post("early", {})
    assert posting.wait(20)
    one.post("late", {"is": "there"})
    one._closed.set()
    closed.set()
    one._line.thread.join(20)
    other = open_book(server.endpoint, 1)
    other.watch("late")
    assert until(lambda: other.read("late")) == {"is": "there"}


def test_what_is_posted_last_arrives_although_the_book_is_closed_at_once(server, open_book):
    one, other = open_book(server.endpoint, 0), open_book(server.endpoint, 1)
    other.watch("status/0")
    until(lambda: one.connected)
    one.post("status/0", {"done": True})
    one.close()
    assert until(lambda: other.read("status/0")) == {"done": True}


def test_forged_and_replayed_entries_are_counted_and_not_believed(server, open_book):
    one, other = open_book(server.endpoint, 0), open_book(server.endpoint, 1)
    other.watch("address/0")
    place, store = "gossamer/a-run/address/0", raw_store(server.endpoint)
    one.post("address/0", {"port": 1})
    until(lambda: other.read("address/0"))
    old = store.get(place).decode()
    one.post("address/0", {"port": 2})
    until(lambda: other.read("address/0") == {"port": 2})
    forgeries = [
        seal("a-run", "address/0", BookEntry(time.time_ns(), {"port": 6}), None).decode(),
        seal("a-run", "address/0", BookEntry(time.time_ns(), {"port": 6}), bytes(32)).decode(),
        seal("a-run", "address/1", BookEntry(time.time_ns(), {"port": 6}), KEY).decode(),
        "x" * (MOST_BYTES + 1),
    ]

    def is_counted(why, content):
        """Say whether it was counted anew; it is set again, as agent 0 posts all it has said when it is back."""
        before = other.counts[why]
        return lambda: store.set(place, content) or other.counts[why] > before

    for forged in forgeries:
        until(is_counted("forged", forged))
    until(is_counted("old", old))
    until(lambda: other.connected)
    assert other.read("address/0") == {"port": 2}
    one.post("address/0", {"port": 3})
    until(lambda: other.read("address/0") == {"port": 3})


def test_an_entry_that_somebody_removes_is_kept_by_those_who_read_it(server, open_book):
    one, other = open_book(server.endpoint, 0), open_book(server.endpoint, 1)
    other.watch("address/0")
    one.post("address/0", {"port": 1})
    until(lambda: other.read("address/0"))
    one.close()  # which would post it again, should it lose the book for a moment
    assert raw_store(server.endpoint).delete_key("gossamer/a-run/address/0")
    until(lambda: lost(other))
    assert other.read("address/0") == {"port": 1}
    until(lambda: other.connected)


# A book that is lost.

CALLS = 20  # whose waiting, were there any, would be longer than a machine stands still


def test_a_book_that_is_not_there_stops_nobody(open_book):
    port = free_port()
    begun = time.monotonic()
    book = open_book(f"127.0.0.1:{port}")
    for _ in range(CALLS):
        book.watch("address/1")
        book.post("address/0", {"port": 1})
        assert book.read("address/1") is None and not book.connected
    assert time.monotonic() - begun < CALLS * PATIENCE / 2
    served = serve_book("127.0.0.1", port)  # now it comes
    try:
        until(lambda: book.connected)
        assert b'"port": 1' in raw_store(served.endpoint).get("gossamer/a-run/address/0")
    finally:
        begun = time.monotonic()
        book.close()
        assert time.monotonic() - begun < 20  # a second or two, and what the machine stands still
        served.close()


def test_a_book_that_is_killed_and_comes_back_is_told_everything_again(open_book):
    with Process(free_port()) as first:
        books = [open_book(first.endpoint, rank) for rank in range(3)]
        for rank, book in enumerate(books):
            book.post(f"address/{rank}", {"rank": rank})
            book.watch(f"address/{(rank + 1) % 3}")
        until(lambda: all(book.read(f"address/{(rank + 1) % 3}") for rank, book in enumerate(books)))
        first.end()
    until(lambda: not any(book.connected for book in books))
    books[0].post("address/0", {"rank": 0, "again": True})
    assert books[2].read("address/0") == {"rank": 0}  # what was read is kept
    with Process(port=int(first.endpoint.split(":")[1])) as second:
        assert second.endpoint == first.endpoint
        until(lambda: all(book.connected for book in books))
        store = raw_store(second.endpoint)
        assert store.check([f"gossamer/a-run/address/{rank}" for rank in range(3)])
        until(lambda: books[2].read("address/0") == {"rank": 0, "again": True})
        assert all(lost(book) for book in books)


def test_a_lost_book_is_no_reason_for_pages_of_stack_traces(open_book, capfd):
    noise = []
    for _ in range(10):  # one that is lost in the very millisecond of a question may be heard of
        served = serve_book("127.0.0.1")
        book = open_book(served.endpoint)
        until(lambda: book.connected)  # noqa: B023
        served.close()
        until(lambda: lost(book))  # noqa: B023
        book.close()
        noise.append(capfd.readouterr().err)
        if not noise[-1]:
            return
    pytest.fail(f"each of them was heard of: {noise}")


def test_a_book_that_is_stopped_stops_nobody_and_goes_on(open_book):
    with Process() as server:
        one, other = open_book(server.endpoint, 0), open_book(server.endpoint, 1)
        other.watch("address/0")
        one.post("address/0", {"port": 1})
        until(lambda: other.read("address/0"))
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            until(lambda: not one.connected)
            begun = time.monotonic()
            for _ in range(CALLS):
                one.post("address/0", {"port": 2})
                assert other.read("address/0") == {"port": 1}
            assert time.monotonic() - begun < CALLS * PATIENCE / 2
            until(lambda: one.counts["stuck"])
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        until(lambda: one.connected and other.connected)
        until(lambda: other.read("address/0") == {"port": 2})


# Serving.


def test_only_the_given_address_is_served(server):
    port = int(server.endpoint.split(":")[1])
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", port), timeout=20):
        pass
    socket.create_connection(("127.0.0.1", port), timeout=20).close()


def test_a_closed_server_is_gone_and_its_port_free():
    port = free_port()
    served = serve_book("127.0.0.1", port)
    served.close()
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), timeout=20):
        pass
    serve_book("127.0.0.1", port).close()


@pytest.mark.parametrize(
    ("address", "port", "key", "why"),
    [
        ("192.0.2.1", 0, None, "not on this host alone"),
        ("0.0.0.0", 0, KEY, "everywhere"),
        ("192.0.2.1", 0, KEY, "cannot listen"),
        ("127.0.0.1", 70_000, None, "cannot listen"),
    ],
)
def test_a_place_that_must_not_or_cannot_be_served_is_refused(address, port, key, why):
    with pytest.raises(UserError, match=why):
        serve_book(address, port, key)


@pytest.mark.parametrize("endpoint", ["", "127.0.0.1", "127.0.0.1:", ":5", "127.0.0.1:0", "127.0.0.1:65536", "h:-1"])
def test_an_endpoint_that_is_none_is_refused(endpoint):
    with pytest.raises(UserError, match="must be host:port"):
        Book(endpoint, "a-run", 0)


def test_a_book_elsewhere_is_not_written_to_without_a_key():
    for host in ("192.0.2.1", "example.org"):
        with pytest.raises(UserError, match=f"'{host}' is not on this host alone"):
            Book(f"{host}:5", "a-run", 0)


def test_the_process_serves_until_it_is_told_to_end(open_book):
    with Process() as server:
        book = open_book(server.endpoint)
        until(lambda: book.connected)
        assert server.end(signal.SIGTERM) == (0, "", "")


@pytest.mark.parametrize(
    ("address", "port", "environment", "why"),
    [
        ("192.0.2.1", "0", {}, "not on this host alone"),
        ("127.0.0.1", "x", {}, "port must be a whole number"),
        ("127.0.0.1", "0", {"GOSSAMER_KEY_FILE": "/nowhere/key"}, "no key file"),
    ],
)
def test_the_process_says_in_one_line_what_is_wrong(address, port, environment, why):
    with Process(port, address, **environment) as server:
        out, err = server.process.communicate(timeout=ENDS)
        assert server.process.returncode == 2 and out == "" and server.endpoint == ""
        assert err.startswith("gossamer: ") and err.count("\n") == 1 and why in err
