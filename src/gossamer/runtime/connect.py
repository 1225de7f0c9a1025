"""An agent's links: transports and the address book, made from the run's settings."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.network import Network
from gossamer.runtime.book.addresses import split_endpoint
from gossamer.runtime.book.keys import read_key
from gossamer.runtime.environment import Run
from gossamer.runtime.transport.auto_transport import AutoTransport
from gossamer.runtime.transport.base import Transport
from gossamer.runtime.transport.fault_spec import parse_faults
from gossamer.runtime.transport.faults import FaultyTransport
from gossamer.runtime.transport.shared_memory import SharedMemory

if TYPE_CHECKING:
    from gossamer.runtime.book.address_book import Book, BookServer


@dataclass(frozen=True)
class Connection:
    """An agent's open transports and address book."""

    transport: Transport
    book: "Book | None"
    server: "BookServer | None"  # of the book, where this agent serves it
    run: Run
    address: Mapping[str, Any]  # its entry in the book; the incarnation is the time at which this agent started

    def has_left(self, peer: int) -> bool:
        """Say whether a peer has finished since this agent started; an older entry may be of an earlier run.

        Two hosts' clocks may differ: a peer that seems to have left before this agent started counts as present.
        """
        left = _address(self.book, peer).get("left")
        return isinstance(left, int) and left > self.address["incarnation"]

    def close(self, *, done: bool = False) -> None:
        """Close everything; an agent that is done posts so, others may be restarted."""
        try:
            self.transport.close()
        finally:
            if self.book is not None:
                if done:
                    self.book.post(f"address/{self.run.rank}", {**self.address, "left": time.time_ns()})
                self.book.close()
            if self.server is not None:
                self.server.close(wait=done)


def connect(run: Run, network: Network, incarnation: int) -> Connection:
    """Open an agent's links, and register its address."""
    key = read_key(Path(run.key_file)) if run.key_file else None
    peers: list[int] = network.pattern.senders_of(run.rank)
    book, server = _open_book(run, key) if run.book else (None, None)

    def same_host(peer: int) -> bool | None:
        host = _address(book, peer).get("host")
        return None if host is None else host == run.host

    shared = sockets = None
    if run.transport != "sockets":
        shared = SharedMemory(run.run, run.rank, run.agents, incarnation)
    if run.transport == "sockets" or (run.transport == "auto" and book is not None):
        from gossamer.runtime.transport.sockets import Sockets

        sockets = Sockets(
            run.rank,
            run.agents,
            incarnation,
            address=run.address,
            key=key,
            where=lambda peer: None if shared and same_host(peer) else _address(book, peer).get("endpoint"),
            run=run.run,
            in_order=run.lockstep,
        )
    address = {"host": run.host, "endpoint": sockets and sockets.endpoint, "incarnation": incarnation}
    if book is not None:
        book.post(f"address/{run.rank}", address)
        for name in (*(f"address/{peer}" for peer in peers), "discovery"):
            book.watch(name)
        for agent in range(run.agents) if run.rank == 0 else ():
            book.watch(f"ages/{agent}")
    transport: Transport | None = shared or sockets
    if shared and sockets:
        transport = AutoTransport(peers, shared, sockets, same_host)
    assert transport is not None
    if run.faults:
        faults = parse_faults(run.faults, run.agents)
        transport = FaultyTransport(transport, faults, run.rank, run.seed, restarts=run.restarts)
    return Connection(transport, book, server, run, address)


def _open_book(run: Run, key: bytes | None) -> "tuple[Book, BookServer | None]":
    """Connect to the address book, which agent 0 serves where no launcher does."""
    from gossamer.runtime.book.address_book import Book, serve_book

    assert run.book is not None
    server = serve_book(run.address, split_endpoint(run.book)[1], key) if run.serves_book else None
    return Book(run.book, run.run, run.rank, key), server


def _address(book: "Book | None", peer: int) -> dict[str, Any]:
    """Return a peer's entry in the book; empty while it is unknown."""
    return (None if book is None else book.read(f"address/{peer}")) or {}
