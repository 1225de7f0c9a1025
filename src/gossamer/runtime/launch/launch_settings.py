"""Settings of the processes of a run, for `gossamer train --engine processes`."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.algorithms.options import describe_options, option
from gossamer.errors import UserError
from gossamer.run.plan import Plan
from gossamer.runtime.environment import Run
from gossamer.state.checkpoint import write_text

RUNTIME_FILE = "runtime.json"  # beside config.toml: how the processes run, and that they are processes


_SHARED = ("transport", "compress", "lockstep", "faults", "deadline", "tolerance", "max_age")


def _of_run(name: str) -> Any:
    """Declare an option as `Run` does."""
    about = describe_options(Run)[name]
    return option(about["default"], about["help"], choices=about["choices"])


@dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """How the agents run; what they learn is in `Settings`."""

    engine: str = option(
        "simulator",
        "one simulator, or one process an agent with real links plus the network's delay",
        choices=("simulator", "processes"),
    )
    transport: str = _of_run("transport")
    compress: str = _of_run("compress")
    lockstep: bool = _of_run("lockstep")
    faults: str | None = _of_run("faults")
    deadline: float | str = _of_run("deadline")
    tolerance: int = _of_run("tolerance")
    max_age: int = _of_run("max_age")
    max_restarts: int = option(3, "restarts of an agent that dies")
    record: str | None = option(None, "write the ages of all messages to this .csv file, for --delay trace:FILE")

    def __post_init__(self) -> None:
        """Check the ranges, before anything is started."""
        if self.max_restarts < 0:
            raise UserError(f"max_restarts must be 0 or more, got {self.max_restarts}; use for example 3")
        Run(**{name: getattr(self, name) for name in _SHARED})

    def run_of(self, made: Plan, name: str) -> Run:
        """Return the agents' settings; each agent makes the network itself."""
        return Run(
            agents=made.network.num_agents,
            run=name,
            seed=made.settings.seed,
            record=self.record is not None,
            **{name: getattr(self, name) for name in _SHARED if name != "max_age"},
            max_age=max(self.max_age, made.network.delay.largest + 1),
        )

    def write(self, folder: Path) -> None:
        """Keep this beside the settings, so that the run can be resumed."""
        write_text(folder / RUNTIME_FILE, json.dumps(dataclasses.asdict(self), indent=2) + "\n")


def read_processes(folder: Path) -> ProcessSettings | None:
    """Read a run's process settings; None for a run of the simulator."""
    try:
        values = json.loads((folder / RUNTIME_FILE).read_text(encoding="utf-8"))
        return ProcessSettings(**values)
    except FileNotFoundError:
        return None
    except UserError:
        raise
    except (ValueError, TypeError):
        raise UserError(f"'{folder / RUNTIME_FILE}' is damaged; train anew into another folder") from None
