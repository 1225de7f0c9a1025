"""What the tests of the live page share: a server in a thread, requests to it, and its stream of events."""

import http.client
import json
import threading
from contextlib import contextmanager

from gossamer.report.watch.follower import Follower
from gossamer.report.watch.page_server import Server, listener, url_of

PATIENCE = 90  # seconds, after which nothing but a hang is left to explain it


@contextmanager
def serving(path, *, token=None, host="127.0.0.1"):
    """Serve the page of a run within this context; gives its address."""
    ready = threading.Event()
    with listener(host, 0) as made:
        server = Server(Follower(path), host, token, ready.set)
        thread = threading.Thread(target=server.run_on, args=(made,), daemon=True)
        thread.start()
        assert ready.wait(PATIENCE)
        try:
            yield url_of(host, made, None)
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
    assert not thread.is_alive()


def get(url, path="/", **headers):
    """Ask for a path; return status, headers and text."""
    link = http.client.HTTPConnection(url.split("/")[2], timeout=PATIENCE)
    try:
        link.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = link.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        link.close()


@contextmanager
def events(url):
    """Open the stream; gives an iterator over (kind, content)."""
    link = http.client.HTTPConnection(url.split("/")[2], timeout=PATIENCE)
    link.request("GET", "/events")
    answer = link.getresponse()
    try:
        yield _events(answer)
    finally:
        answer.close()
        link.close()


def _events(answer):
    kind = None
    while line := answer.readline().decode():
        if line.startswith("event: "):
            kind = line.removeprefix("event: ").strip()
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))
