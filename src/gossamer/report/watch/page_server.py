"""The server of the watch page: the page, its events, and its socket."""

import asyncio
import contextlib
import secrets
import socket
import time
import urllib.parse
from collections.abc import AsyncIterator, Callable

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gossamer.errors import UserError
from gossamer.report.html_page import POLICY, asset, make_page
from gossamer.report.watch.follower import EVERY, Follower
from gossamer.runtime.book.addresses import is_loopback, join_endpoint

ASSETS = "gossamer.report.watch"
HEARTBEAT = 15.0  # seconds between two signs of life without news, so that a lost page is noticed
LOOK = 0.5  # seconds between two looks for news
COOKIE = "gossamer-watch"
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1", "[::1]")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",  # the address may contain the token
    "X-Content-Type-Options": "nosniff",
}


class Guard:
    """Refuses requests without the token: in the address, where it becomes a cookie, or in a header."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":  # the server's own messages
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if self._is_token(request.query_params.get("token")):
            response: Response = RedirectResponse(request.url.remove_query_params("token").path or "/", 303, HEADERS)
            response.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
            await response(scope, receive, send)
            return
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        given = bearer if scheme.lower() == "bearer" else request.cookies.get(COOKIE)
        if self._is_token(given):
            await self._app(scope, receive, send)
        else:
            await PlainTextResponse("this page needs its token\n", 401, HEADERS)(scope, receive, send)

    def _is_token(self, given: str | None) -> bool:
        return given is not None and secrets.compare_digest(given.encode(), self._token.encode())


def make_app(
    follower: Follower, host: str, *, token: str | None = None, stopping: Callable[[], bool] = lambda: False
) -> Starlette:
    """Return the app. On a loopback address it answers only to its own names, so no other site can read it."""

    async def page(_: Request) -> Response:
        follower.look()
        model = {**follower.model[1], "live": follower.live[1]}
        policy = f"{POLICY}; connect-src 'self'"
        script, style = asset("live.js", ASSETS), asset("live.css", ASSETS)
        document = make_page(model, live_script=script, live_style=style, policy=policy)
        return HTMLResponse(document, headers=HEADERS)

    async def events(_: Request) -> Response:
        return StreamingResponse(stream(follower, stopping), media_type="text/event-stream", headers=HEADERS)

    middleware = [
        Middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK_NAMES, host] if is_loopback(host) else ["*"])
    ]
    if token is not None:
        middleware.append(Middleware(Guard, token=token))
    return Starlette(routes=[Route("/", page), Route("/events", events)], middleware=middleware)


async def stream(follower: Follower, stopping: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield news as server-sent events: data of the whole page, and the state of the run."""
    sent = {"model": -1, "status": -1}
    last = time.monotonic()
    yield "retry: 2000\n\n"
    while not stopping():
        follower.look()
        for kind, (number, text) in follower.news.items():
            if number != sent[kind]:
                sent[kind], last = number, time.monotonic()
                yield f"event: {kind}\ndata: {text}\n\n"  # JSON has no line breaks of its own
        if time.monotonic() - last >= HEARTBEAT:
            last = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(min(LOOK, EVERY))


LOOPBACK = "127.0.0.1"
SHORTEST_TOKEN = 16  # characters
GRACE = 10  # seconds for streams to end; they need half a second, more on a busy machine


def check_place(host: str | None, port: int, token: str | None) -> str:
    """Return the host, or refuse it: any host but the loopback address needs a token."""
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
    """Return a listening socket."""
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
            f"cannot listen on {join_endpoint(host, port)} ({error.strerror}); choose an address of this machine "
            "and a free port, or leave --port out"
        ) from None
    return made


def url_of(host: str, made: socket.socket, token: str | None) -> str:
    """Return the page's address."""
    port = made.getsockname()[1]
    query = "" if token is None else f"?token={urllib.parse.quote(token, safe='')}"
    return f"http://{join_endpoint(host, port)}/{query}"


class Server(uvicorn.Server):
    """The server of the page: calls `ready` when it can be reached, and ends its streams when it stops."""

    def __init__(self, follower: Follower, host: str, token: str | None, ready: Callable[[], None]) -> None:
        app = make_app(follower, host, token=token, stopping=lambda: self.should_exit)
        # No log, because addresses contain the token.
        super().__init__(
            uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=GRACE, lifespan="off")
        )
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then call `ready`."""
        await super().startup(sockets)
        self._ready()

    def run_on(self, made: socket.socket) -> None:
        """Serve until Ctrl+C."""
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again after an orderly end
            asyncio.run(self.serve(sockets=[made]))
