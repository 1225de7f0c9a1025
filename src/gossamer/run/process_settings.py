"""Settings of the processes of a run, for `gossamer train --engine processes`."""

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.algorithms.options import describe_options, option
from gossamer.errors import UserError, unknown_name
from gossamer.state.checkpoint import write_text

RUNTIME_FILE = "runtime.json"  # beside config.toml: how the processes run, and that they are processes


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """How messages travel between processes, and when a neighbour counts as late or dead."""

    transport: str = option(
        "auto",
        "transport of messages; auto: shared memory on one host, sockets between hosts",
        choices=("auto", "shared", "sockets"),
    )
    compress: str = option("none", "compression of messages: none, bf16, int8, topk:0.01")
    lockstep: bool = option(False, "wait for every neighbour at every step; makes a run reproducible")
    faults: str | None = option(None, "faults to inject into the links, for tests")
    deadline: float | str = option(
        "auto", "seconds of silence after which a neighbour counts as dead; auto: 20 usual intervals"
    )
    tolerance: int = option(1, "largest age in steps that counts as current")
    max_age: int = option(64, "number of own past states to keep; older messages are clipped")

    def __post_init__(self) -> None:
        """Check ranges and choices."""
        for name, least in (("tolerance", 0), ("max_age", 1)):
            if not getattr(self, name) >= least:  # so that nan fails too
                raise UserError(f"{name} must be {least} or more, got {getattr(self, name)}")
        if isinstance(self.deadline, int):
            object.__setattr__(self, "deadline", float(self.deadline))
        if self.deadline != "auto" and not (isinstance(self.deadline, float) and 0 < self.deadline < math.inf):
            raise UserError(f"deadline must be auto or seconds above 0, got '{self.deadline}'; use for example 10")
        for field in dataclasses.fields(self):
            choices = field.metadata.get("choices")
            if choices and getattr(self, field.name) not in choices:
                raise unknown_name(field.name, getattr(self, field.name), choices)


def _of_links(name: str) -> Any:
    """Declare an option as `LinkSettings` does."""
    about = describe_options(LinkSettings)[name]
    return option(about["default"], about["help"], choices=about["choices"])


@dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """How the agents run; what they learn is in `Settings`."""

    engine: str = option(
        "simulator",
        "the simulator, or one process per agent with real links plus the network's delay",
        choices=("simulator", "processes"),
    )
    transport: str = _of_links("transport")
    compress: str = _of_links("compress")
    lockstep: bool = _of_links("lockstep")
    faults: str | None = _of_links("faults")
    deadline: float | str = _of_links("deadline")
    tolerance: int = _of_links("tolerance")
    max_age: int = _of_links("max_age")
    max_restarts: int = option(3, "most restarts of one agent")
    record: str | None = option(
        None,
        "write the ages of all messages to this .csv file, for --delay trace:FILE; and times, for --testbed run:FOLDER",
    )

    def __post_init__(self) -> None:
        """Check the ranges, before anything is started."""
        if self.max_restarts < 0:
            raise UserError(f"max_restarts must be 0 or more, got {self.max_restarts}; use for example 3")
        LinkSettings(**self.links)

    @property
    def links(self) -> dict[str, Any]:
        """The settings of the links by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(LinkSettings)}

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
