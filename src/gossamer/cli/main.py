"""The entry point: commands, and the one place where errors become a line on standard error."""

import functools
import io
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

from gossamer.cli.algorithms import algorithms
from gossamer.cli.bench import bench
from gossamer.cli.bounds import bounds
from gossamer.cli.compare import compare, demo
from gossamer.cli.interrupt import INTERRUPTED
from gossamer.cli.launch import launch
from gossamer.cli.network import network
from gossamer.cli.report import report
from gossamer.cli.reproduce import reproduce
from gossamer.cli.stability import stability
from gossamer.cli.train import train
from gossamer.cli.tune import tune
from gossamer.cli.watch import watch
from gossamer.errors import UserError
from gossamer.version import __version__

app = typer.Typer(
    name="gossamer",
    help="Train one model with many agents over a peer-to-peer network whose links are late.",
    epilog="Example: gossamer train --algorithm pc-asgd --network paper-1 --delay 20 --epochs 20 --lr 0.1",
    add_completion=False,
    rich_markup_mode="rich",
)


def _interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Say a word on Ctrl+C; Typer would end the program without one."""

    @functools.wraps(command)
    def wrapper(*arguments: Any, **values: Any) -> None:
        try:
            command(*arguments, **values)
        except KeyboardInterrupt:
            print("gossamer: interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None

    return wrapper


for command in (train, compare, tune, network, algorithms, bounds, stability, demo, bench, reproduce, report, watch):
    app.command()(_interruptible(command))
# What follows the script belongs to it, flags too.
app.command(context_settings={"allow_interspersed_args": False})(_interruptible(launch))


@app.callback(invoke_without_command=True)  # or --version would miss a command
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    """Train one model with many agents over a peer-to-peer network whose links are late."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main(arguments: list[str] | None = None) -> None:
    """Run a command; a mistake of the user's gives one line on standard error and exit status 2."""
    warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± or … shows ? instead of failing
    given = sys.argv[1:] if arguments is None else arguments
    try:
        status = typer.main.get_command(app).main(given or ["--help"], prog_name="gossamer", standalone_mode=False)
    except UserError as error:
        _fail(str(error))
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone, as in `gossamer algorithms | head`; there is nobody to tell
        sys.exit(1)
    except OSError as error:
        _fail(f"cannot use '{error.filename}' ({error.strerror}); check the path and its permissions")
    except Exception as error:
        # Typer's own complaints about flags; it brings its parser along, so their class has no public name.
        if hasattr(error, "format_message"):
            _fail(error.format_message())
        if place := _out_of_memory(error):
            _fail(f"there is not enough memory {place}; use a smaller model, batch, delay or number of agents")
        raise
    sys.exit(status if isinstance(status, int) else 0)


def _out_of_memory(error: Exception) -> str | None:
    """Return where memory ended, if that is what went wrong."""
    if "out of memory" in str(error):  # torch's words for every kind of accelerator
        return "left on the device, which other programs may share"
    return "for this" if isinstance(error, MemoryError) or "allocate memory" in str(error) else None


def _fail(message: str) -> None:
    print("gossamer: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(2)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"gossamer: warning: {message}", file=sys.stderr)
