"""The address book: where the agents of a run are, and their status.

The book is a TCPStore in its own process. Training continues without it: an agent keeps the entries it has read, and
posts its own again when the book returns. The store has no passwords: any client that reaches it can read and remove
entries, but cannot forge one that an agent with the run's key accepts.
"""

import atexit
import contextlib
import socket
import threading
import time
from collections import Counter
from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # it is public, if not in __all__

from gossamer.errors import UserError
from gossamer.runtime.book.addresses import bindable, join_endpoint, refuse_without_key, split_endpoint
from gossamer.runtime.book.keys import BookEntry, Forged, seal, unseal

PERIOD = 0.25  # seconds between two looks at the book
PATIENCE = 3.0  # seconds for one look, or for a connection; a slower book counts as lost
MOST_STUCK = 4  # limit on threads that hang in the store, which has no deadlines


class BookServer:
    """A book served from this process."""

    def __init__(self, store: TCPStore, endpoint: str) -> None:
        self.endpoint = endpoint
        self._store: TCPStore | None = store

    def close(self, *, wait: bool = False) -> None:
        """Stop serving; `wait` gives the agents time to read the last entries."""
        time.sleep(2 * PERIOD if wait else 0)
        self._store = None  # its destructor stops the thread and closes the socket


def serve_book(address: str, port: int = 0, key: bytes | None = None) -> BookServer:
    """Serve a book on this address only; by default TCPStore listens on all of them."""
    host = bindable(address, key)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # to restart at the same port
        listener.bind((host, port))
        listener.listen(1024)
    except (OSError, OverflowError) as error:
        listener.close()
        raise UserError(
            f"the address book cannot listen on {join_endpoint(host, port)} ({error}); "
            "choose an address of this host, and a free port or 0"
        ) from None
    port = listener.getsockname()[1]
    store = TCPStore(
        host,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=PATIENCE),
        master_listen_fd=listener.detach(),
    )
    return BookServer(store, join_endpoint(host, port))


class Book:
    """One agent's connection to the book. Only `close` waits for the server, for a second or two."""

    def __init__(self, endpoint: str, run: str, rank: int, key: bytes | None = None) -> None:
        self.server = split_endpoint(endpoint)
        refuse_without_key(self.server[0], key)
        self.counts: Counter[str] = Counter()  # "forged", "old", "lost", "stuck"
        self._run, self._key = run, key
        self._posted: dict[str, bytes] = {}
        self._watched: dict[str, None] = {}  # a set that keeps its order
        self._records: dict[str, BookEntry] = {}
        self._seen: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._news, self._closed = threading.Event(), threading.Event()
        self._last_time = 0
        self._line = _BookLine(self, f"gossamer-book-{rank}")
        self._line.thread.start()
        self._supervisor = threading.Thread(target=self._supervise, name="gossamer-book", daemon=True)
        self._supervisor.start()
        atexit.register(self.close)  # a thread inside the store while Python ends would bring the process down

    def post(self, name: str, value: dict[str, Any]) -> None:
        """Set the entry under a name, in this book and in any that replaces it."""
        with self._lock:
            self._last_time = max(time.time_ns(), self._last_time + 1)
            self._posted[name] = seal(self._run, name, BookEntry(self._last_time, value), self._key)
        self._news.set()

    def watch(self, name: str) -> None:
        """Read this entry regularly from now on."""
        with self._lock:
            self._watched[name] = None
        self._news.set()

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a copy of a watched entry as last read, or None before that."""
        record = self._records.get(name)
        return None if record is None else dict(record.value)

    @property
    def connected(self) -> bool:
        """Say whether the book answers, and has all that this agent had posted when it connected."""
        line = self._line
        return line.ready and time.monotonic() - line.progress < PATIENCE

    def close(self, seconds: float = 1.0) -> None:
        """Post what is pending, if the book answers, and stop."""
        atexit.unregister(self.close)
        if not self._closed.is_set():
            self._closed.set()
            self._news.set()
            self._line.thread.join(seconds)  # it posts once more
            self._supervisor.join(seconds)

    def _supervise(self) -> None:
        """Replace a line that hangs in the store by a new one."""
        stuck: list[_BookLine] = []
        while not self._closed.wait(PERIOD):
            if time.monotonic() - self._line.progress < PATIENCE:
                continue
            stuck = [line for line in stuck if line.thread.is_alive()]
            if len(stuck) < MOST_STUCK:  # else keep the last one, which continues when the server does
                stuck.append(self._line)
                self.counts["stuck"] += 1
                self._line = _BookLine(self, self._line.thread.name)
                self._line.thread.start()

    # For the line.

    def serves(self, line: "_BookLine") -> bool:
        """Say whether this line is in use."""
        return self._line is line and not self._closed.is_set()

    def rest(self) -> None:
        """Wait for the next period, or for something to post."""
        self._news.wait(PERIOD)
        self._news.clear()

    def place(self, name: str) -> str:
        """Return an entry's key in the store; runs may share a book."""
        return f"gossamer/{self._run}/{name}"

    def unknown_to(self, sent: dict[str, bytes]) -> dict[str, bytes]:
        """Return the entries that have not been sent."""
        with self._lock:
            return {name: sealed for name, sealed in self._posted.items() if sent.get(name) is not sealed}

    def watched(self) -> list[str]:
        """Return the names to read."""
        with self._lock:
            return list(self._watched)

    def take(self, fetched: dict[str, bytes]) -> None:
        """Keep the entries that are new and authentic."""
        for name, sealed in fetched.items():
            if self._seen.get(name) == sealed:
                continue
            self._seen[name] = sealed
            try:
                record = unseal(self._run, name, sealed, self._key)
            except Forged:
                self.counts["forged"] += 1
                continue
            known = self._records.get(name)
            if known is not None and record.time < known.time:
                self.counts["old"] += 1
            else:
                self._records[name] = record


class _BookLine:
    """The connection to the book, in a thread that reconnects, and that may hang for ever.

    A second, plain socket to the same server shows when the server dies: the system closes it. The store itself would
    print a page of C++ frames for each failed request.
    """

    def __init__(self, book: Book, name: str) -> None:
        self._book = book
        self.progress = time.monotonic()  # when the last look at the book ended or failed
        self.ready = False
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        while self._book.serves(self):
            try:
                with socket.create_connection(self._book.server, timeout=PATIENCE / 2) as canary:
                    canary.setblocking(False)
                    self._use(canary)
            except Exception:  # RuntimeError's children from the store, OSError from sockets: either way it is lost
                self._book.counts["lost"] += self.ready
            self.ready = False
            self.progress = time.monotonic()
            if self._book.serves(self):
                self._book.rest()

    def _use(self, canary: socket.socket) -> None:
        """Post and read for as long as the server lives."""
        host, port = self._book.server
        store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=PATIENCE / 2))
        sent: dict[str, bytes] = {}
        present: set[str] = set()
        while True:
            ends = not self._book.serves(self)  # before the push, which then includes the last posts
            self._push(store, sent)
            if ends:
                return
            self._fetch(store, present)
            self.progress, self.ready = time.monotonic(), True
            self._book.rest()
            with contextlib.suppress(BlockingIOError):  # still open: the server never sends anything
                canary.recv(1)
                raise ConnectionError("the server is gone")

    def _push(self, store: TCPStore, sent: dict[str, bytes]) -> None:
        """Post the entries that changed; on a new connection, all."""
        for name, sealed in self._book.unknown_to(sent).items():
            store.set(self._book.place(name), sealed.decode())
            sent[name] = sealed
        store.check([self._book.place("")])  # the server answers this, and only after what came before

    def _fetch(self, store: TCPStore, present: set[str]) -> None:
        """Read the watched entries that exist; the store would wait for a missing one."""
        names = self._book.watched()
        missing = [name for name in names if name not in present]
        if missing and store.check([self._book.place(name) for name in missing]):
            present.update(missing)
        else:
            present.update(name for name in missing if store.check([self._book.place(name)]))
        names = [name for name in names if name in present]
        fetched = store.multi_get([self._book.place(name) for name in names]) if names else []
        if self._book.serves(self):
            self._book.take(dict(zip(names, fetched, strict=True)))
