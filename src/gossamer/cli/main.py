"""The entry point: the list of commands. Here alone, errors become one line on standard error."""

import io
import sys
import warnings
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from gossamer.cli.interrupt import INTERRUPTED
from gossamer.errors import UserError
from gossamer.run.cores import wait_patiently
from gossamer.version import __version__

# One line per command, so that the list is printed without importing any of them.
COMMANDS = {
    "train": "Train one model with all agents of a network.",
    "compare": "Compare algorithms on one task and network over several seeds.",
    "tune": "Find a learning rate for each algorithm on held-out data.",
    "network": "Show a network: links, clusters and mixing matrices.",
    "testbed": "Show a testbed: transfer times, ages in steps, the synchronous round.",
    "algorithms": "List every algorithm, or show one with its options.",
    "bounds": "Print the paper's bounds beside what a run measured.",
    "stability": "Check whether an algorithm is stable at a learning rate.",
    "demo": "Compare algorithms on the paper's 8 agents and the digits data.",
    "bench": "Measure speed and memory beside other ways to train.",
    "reproduce": "Reproduce the paper's tables and figures.",
    "report": "Write runs as one HTML page that opens offline.",
    "watch": "Follow a run on a live page.",
    "launch": "Run your training script as many agents, one process each.",
}


class _Commands(TyperGroup):
    """The commands by name. A command's module is imported when the command is used: torch takes seconds."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, help=line) for name, line in COMMANDS.items()}  # placeholders

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command itself, with its name and its arguments."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and load_command(name), rest

    def invoke(self, ctx: Any) -> Any:
        """Run a command. On Ctrl+C print a line; Typer would print none."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print("gossamer: interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None


def load_command(name: str) -> Any:
    """Import a command and return it with its flags."""
    module = import_module(f"gossamer.cli.{'compare' if name == 'demo' else name}")
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    # Flags after the script of `launch` belong to the script.
    single.command(name, context_settings={"allow_interspersed_args": name != "launch"})(getattr(module, name))
    return typer.main.get_command(single)


app = typer.Typer(
    name="gossamer",
    cls=_Commands,
    help="Train one model with many agents over a peer-to-peer network whose links are late.",
    epilog="Example: gossamer train --algorithm pc-asgd --network paper-1 --delay 20 --epochs 20 --lr 0.1",
    add_completion=False,
    rich_markup_mode="rich",
)


@app.callback(invoke_without_command=True)  # so that --version works without a command
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    """Train one model with many agents over a peer-to-peer network whose links are late."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main(arguments: list[str] | None = None) -> None:
    """Run a command. A UserError prints one line on standard error and exits with status 2."""
    wait_patiently()
    warnings.showwarning = lambda message, *_, **__: print(f"gossamer: warning: {message}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± or … shows ? instead of failing
    given = sys.argv[1:] if arguments is None else arguments
    try:
        status = typer.main.get_command(app).main(given or ["--help"], prog_name="gossamer", standalone_mode=False)
    except UserError as error:
        _fail(str(error))
    except BrokenPipeError:
        sys.stderr.close()  # the reader is gone, as in `gossamer algorithms | head`
        sys.exit(1)
    except OSError as error:
        _fail(f"cannot use '{error.filename}' ({error.strerror}); check the path and its permissions")
    except Exception as error:
        # Typer's error about flags; its class has no public name.
        if hasattr(error, "format_message"):
            _fail(error.format_message())
        if place := _out_of_memory(error):
            _fail(f"there is not enough memory {place}; use a smaller model, batch, delay or number of agents")
        raise
    sys.exit(status if isinstance(status, int) else 0)


def _out_of_memory(error: Exception) -> str | None:
    """Return where memory ran out, or None for any other error."""
    if "out of memory" in str(error):  # the wording of torch for every accelerator
        return "left on the device, which other programs may share"
    return "for this" if isinstance(error, MemoryError) or "allocate memory" in str(error) else None


def _fail(message: str) -> None:
    print("gossamer: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(2)
