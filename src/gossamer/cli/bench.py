"""`gossamer bench`: speed and memory on this machine, beside other ways to train the same models."""

from pathlib import Path
from typing import Annotated

import typer

from gossamer.cli.descriptions import read_descriptions

_CASES = ", ".join(read_descriptions()["cases"])


def bench(
    *,
    names: Annotated[list[str] | None, typer.Argument(metavar="CASE", help="Cases to run, as in --cases.")] = None,
    device: Annotated[str | None, typer.Option(help="Torch device (default: cuda if available, else cpu).")] = None,
    cases: Annotated[
        str | None,
        typer.Option(help=f"Comma-separated names: {_CASES} (default: those that suit the device)."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps per timed block (default: each case has its own number).")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="Precision: float32, tf32 or bf16 (default: bf16 on a GPU, float32 on a CPU).")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use tiny sizes: a smoke test, not a measurement.")] = False,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for the results.")] = Path("benchmarks"),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Measure speed and memory of gossamer beside other ways to train the same models on this machine.

    Stores the numbers in results-DEVICE.json and writes RESULTS.md from all such files in the folder. Ctrl+C keeps the
    cases measured so far.

    Example: gossamer bench mlp algorithms --device cpu
    """
    from gossamer.bench import make_request  # imports torch, which --help does not need
    from gossamer.cli.bench_run import run_bench

    request = make_request(device, precision, steps, quick=quick)
    run_bench(request, ",".join(filter(None, [*(names or []), cases])) if names else cases, out_dir, json=json)
