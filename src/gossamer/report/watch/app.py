"""The page's server: one page, and the stream of events that keeps it up to date."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gossamer.report.html_page import POLICY, make_page
from gossamer.report.watch.follow import EVERY, Follower
from gossamer.report.watch.live_page import live_script, live_style
from gossamer.runtime.directory.addresses import is_loopback

HEARTBEAT = 15.0  # seconds after which something is sent even if nothing is new: so a lost page is noticed
LOOK = 0.5  # seconds between two looks at whether there is anything to send
COOKIE = "gossamer-watch"
LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",  # the address may hold the token
    "X-Content-Type-Options": "nosniff",
}


class Guard:
    """Lets nobody in without the token: in the address once, which becomes a cookie, or in a header."""

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
    """Return the app. On a loopback address it answers only to its own names, so that no other site can ask."""

    async def page(_: Request) -> Response:
        follower.look()
        model = {**follower.model[1], "live": follower.live[1]}
        policy = f"{POLICY}; connect-src 'self'"
        document = make_page(model, live_script=live_script(), live_style=live_style(), policy=policy)
        return HTMLResponse(document, headers=HEADERS)

    async def events(_: Request) -> Response:
        return StreamingResponse(stream(follower, stopping), media_type="text/event-stream", headers=HEADERS)

    middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK, host] if is_loopback(host) else ["*"])]
    if token is not None:
        middleware.append(Middleware(Guard, token=token))
    return Starlette(routes=[Route("/", page), Route("/events", events)], middleware=middleware)


async def stream(follower: Follower, stopping: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield what is new as server-sent events: models of the whole page, and how the run fares in between."""
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
