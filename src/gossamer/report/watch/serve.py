"""From a host and a port to a server that runs until Ctrl+C."""

import asyncio
import contextlib
import socket
import urllib.parse
from collections.abc import Callable

import uvicorn

from gossamer.errors import UserError
from gossamer.report.watch.app import make_app
from gossamer.report.watch.follow import Follower
from gossamer.runtime.directory.addresses import is_loopback, joined

LOOPBACK = "127.0.0.1"
SHORTEST_TOKEN = 16  # characters
GRACE = 10  # seconds that streams have to end, which they do by themselves in half a one: the machine may stand still


def check_place(host: str | None, port: int, token: str | None) -> str:
    """Return the host, or refuse: beyond the loopback address a page needs an explicit host and a token."""
    if not 0 <= port <= 65535:
        raise UserError(f"port must lie between 0 and 65535, got {port}; 0 takes one that is free")
    if token is not None and (len(token) < SHORTEST_TOKEN or not (token.isascii() and token.isprintable())):
        raise UserError(
            f"a token needs at least {SHORTEST_TOKEN} plain characters, got {len(token)}; "
            "make one with: openssl rand -hex 16"
        )
    host = LOOPBACK if host is None else host
    if not is_loopback(host) and token is None:
        raise UserError(
            f"host '{host}' can be reached from other machines, without a token only {LOOPBACK} is allowed; "
            "add --token (openssl rand -hex 16 makes one), or leave --host out"
        )
    return host


def listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens there."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family)
    except (OSError, UnicodeError) as error:
        raise UserError(f"cannot find the host '{host}' ({error}); give an address of this machine") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
    except OSError as error:
        made.close()
        raise UserError(
            f"cannot listen on {joined(host, port)} ({error.strerror}); choose an address of this machine and a free "
            "port, or leave --port out"
        ) from None
    return made


def url_of(host: str, made: socket.socket, token: str | None) -> str:
    """Return the page's address."""
    port = made.getsockname()[1]
    query = "" if token is None else f"?token={urllib.parse.quote(token, safe='')}"
    return f"http://{joined(host, port)}/{query}"


class Server(uvicorn.Server):
    """The page's server, which says when it can be reached, and ends its streams when it is to end."""

    def __init__(self, follower: Follower, host: str, token: str | None, ready: Callable[[], None]) -> None:
        app = make_app(follower, host, token=token, stopping=lambda: self.should_exit)
        # No log: addresses hold the token.
        super().__init__(
            uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=GRACE, lifespan="off")
        )
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        self._ready()

    def run_on(self, made: socket.socket) -> None:
        """Serve until Ctrl+C."""
        with contextlib.suppress(KeyboardInterrupt):  # which uvicorn raises once more after it has ended in order
            asyncio.run(self.serve(sockets=[made]))
