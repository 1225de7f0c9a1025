"""`gossamer watch`: a live page of a run."""

import contextlib
import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from gossamer.cli.display import print_json
from gossamer.errors import UserError

NICE = 10  # the run has priority when cores are scarce


def watch(
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="Folder of the run (default: the newest under runs/).")
    ] = None,
    *,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on (default 127.0.0.1); any other needs --token.")
    ] = None,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.")] = 0,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="GOSSAMER_WATCH_TOKEN",
            show_envvar=True,
            help="Secret that a visitor must know: at least 16 characters.",
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the address as a JSON object.")] = False,
) -> None:
    """Follow a run of train or launch on a live page: progress, charts, the network, agents that die or diverge.

    Only reads the run's folder, so it never disturbs the run. Ctrl+C ends the page, not the run.

    Example: gossamer watch runs/pc-asgd-paper-1-delay20-seed0 --open
    """
    try:
        from gossamer.report.html_page import plotly_script
        from gossamer.report.watch.follower import Follower
        from gossamer.report.watch.page_server import Server, check_place, listener, url_of
        from gossamer.report.watch.watched_folder import newest_run
    except ImportError as error:
        missing = error.name or "starlette"
        raise UserError(f"the page needs {missing}, which is not installed; pip install {missing}") from None

    plotly_script()  # fail now if plotly is missing, not on the page
    where = check_place(host, port, token)
    folder = newest_run() if run is None else run
    follower = Follower(folder)
    made = listener(where, port)
    url = url_of(where, made, token)

    def ready() -> None:
        if json:
            print_json({"url": url, "run_dir": str(folder)})
        else:
            print(f"watching {folder} at {url} (Ctrl+C ends the page, not the run)")
        sys.stdout.flush()
        if open_page and not webbrowser.open(url):
            print("gossamer: no browser to open; open the address yourself", file=sys.stderr)

    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICE)
    with made:
        Server(follower, where, token, ready).run_on(made)
