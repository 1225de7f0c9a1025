"""One agent's settings, read from environment variables.

A launcher writes GOSSAMER_RANK, GOSSAMER_BOOK and so on; torchrun and Slurm's srun set variables of their own,
which are used when GOSSAMER_RANK is not set. Without any of them a script is a run of one agent, so `python train.py`
just works.
"""

import dataclasses
import math
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.algorithms.options import option, read_options
from gossamer.errors import UserError
from gossamer.network import Network
from gossamer.network import network as make_network
from gossamer.network.network import CLIP_WEIGHTS, STARTUPS
from gossamer.run.process_settings import LinkSettings
from gossamer.runtime.book.addresses import is_loopback, split_endpoint
from gossamer.runtime.message import MOST_AGENTS
from gossamer.runtime.schedulers import (
    LOOPBACK,
    own_address,
    read_slurm,
    read_torchrun,
    to_run_id,
    torchrun_restarts,
)

PREFIX = "GOSSAMER_"
RUN_ID = re.compile(r"[a-z0-9-]{1,40}")
SHARED_MEMORY = Path("/dev/shm")
_ALWAYS = ("rank", "agents", "run")  # written even where they equal the default
_AT_LEAST = {"rank": 0, "seed": 0, "restarts": 0, "launcher": 0}


@dataclass(frozen=True, kw_only=True)
class Run(LinkSettings):
    """One agent's view of a run. Each field but the last is the variable GOSSAMER_… of the same name."""

    rank: int = option(0, "number of this agent, from 0")
    agents: int = option(1, "number of agents in the run")
    run: str = option("alone", "name of the run, the same for all agents: lower-case letters, digits, dashes")
    network: str = option("", "the graph: clusters:3,5, ring:8, file:net.json, … (default complete:N)")
    clusters: str | None = option(None, "reliable clusters: sizes '3,5' or members '0,1,2/3,4'")
    delay: str | None = option(None, "delay to add, in steps: 20, uniform:5,60, trace:FILE, …")
    loss: float = option(0.0, "probability of dropping a message")
    mixing: str = option("metropolis", "weights of W", choices=("metropolis", "uniform"))
    lazy: bool = option(False, "use (I + W) / 2")
    clip_weights: str = option("rebuilt", "weights of the clipping step", choices=CLIP_WEIGHTS)
    startup: str = option("wait", "weight of a late neighbour until its first message arrives", choices=STARTUPS)
    seed: int = option(0, "random seed of initial parameters, data order, added delays and random choices")
    algorithm: str = option("pc-asgd", "update rule with its options, such as pc-asgd/theta=pv")
    book: str | None = option(None, "address book of the run: host:port")
    key_file: str | None = option(None, "file with the run's key; required when other machines can reach the agents")
    address: str = option(LOOPBACK, "address of this machine that agents listen on")
    host: str = option("", "host name; agents with the same one share memory (default: from the machine)")
    meet: float = option(20.0, "seconds to wait for the neighbours before the first step")
    folder: str | None = option(None, "folder of the run")
    record: bool = option(False, "write the ages of messages, and the times of messages and iterations, to replay")
    restarts: int = option(0, "number of restarts of this agent")
    launcher: int = option(0, "process id of the launcher; agents exit when it is gone; 0: none")
    serves_book: bool = False  # no variable: follows from the launcher

    def __post_init__(self) -> None:
        """Fill in dependent fields, and check ranges."""
        super().__post_init__()
        if not 1 <= self.agents <= MOST_AGENTS:
            raise UserError(f"agents must lie between 1 and {MOST_AGENTS}, got {self.agents}")
        if not self.network:
            object.__setattr__(self, "network", f"complete:{self.agents}")
        if not self.host:
            object.__setattr__(self, "host", host_name())
        for name, least in _AT_LEAST.items():
            if not getattr(self, name) >= least:  # so that nan fails too
                raise UserError(f"{name} must be {least} or more, got {getattr(self, name)}")
        if self.rank >= self.agents:
            last = self.agents - 1
            raise UserError(f"rank must lie between 0 and {last} with {self.agents} agents, got {self.rank}")
        if not RUN_ID.fullmatch(self.run):
            raise UserError(
                f"run '{self.run}' must be 1 to 40 small letters, digits and dashes; try {to_run_id(self.run)}"
            )
        if not 0 <= self.meet < math.inf:
            raise UserError(f"meet must be 0 seconds or more, got {self.meet:g}; use for example 20")
        if self.book is not None:
            split_endpoint(self.book)
        if not is_loopback(self.address) and self.key_file is None:
            raise UserError(
                f"address {self.address} can be reached from other machines, and the run has no key; name a file of "
                "64 hex digits with mode 600 (openssl rand -hex 32) in GOSSAMER_KEY_FILE or --key-file"
            )

    def to_environment(self) -> dict[str, str]:
        """Return the variables from which `read_environment` makes the same run, without defaults."""
        assumed = Run(agents=self.agents)
        values = {name: getattr(self, name) for name in FIELDS}
        return {
            PREFIX + name.upper(): str(int(value) if isinstance(value, bool) else value)
            for name, value in values.items()
            if name in _ALWAYS or value != getattr(assumed, name)
        }

    def make_network(self) -> Network:
        """Return the run's network, after checking its number of agents."""
        names = ("clusters", "loss", "mixing", "lazy", "clip_weights", "startup")
        made = make_network(self.network, self.delay, **{name: getattr(self, name) for name in names})
        if made.num_agents != self.agents:
            raise UserError(
                f"network '{self.network}' has {made.num_agents} agents but the run has {self.agents}; "
                "make the two numbers the same"
            )
        return made


FIELDS = tuple(field.name for field in dataclasses.fields(Run) if field.name != "serves_book")
VARIABLES = tuple(PREFIX + name.upper() for name in FIELDS)


def read_environment(environ: Mapping[str, str] = os.environ) -> Run:
    """Return this process's run: from GOSSAMER_…, else from torchrun's or Slurm's variables, else of one agent."""
    given = _read_own(environ)
    found = {} if "rank" in given else read_torchrun(environ) or read_slurm(environ)
    if found and given.get("agents", found["agents"]) != found["agents"]:
        raise UserError(
            f"GOSSAMER_AGENTS is {given['agents']} but there are {found['agents']} processes; make the two the same"
        )
    restarts = max(given.get("restarts", 0), found.pop("restarts", 0), torchrun_restarts(environ))
    toward = found.pop("toward", None)
    values = {**found, **given, "restarts": restarts}
    agents = values.get("agents", 1)
    if agents > 1 and "rank" not in values:
        raise UserError(f"GOSSAMER_AGENTS is {agents} but GOSSAMER_RANK is not set; start with gossamer launch")
    if agents > 1 and "book" not in values:
        raise UserError(f"{agents} agents cannot find each other without GOSSAMER_BOOK; start with gossamer launch")
    if toward is not None and "address" not in given:
        values["address"] = own_address(toward)
    # Unique among the runs of this machine.
    values.setdefault("run", to_run_id(f"book-{values['book']}") if agents > 1 else f"alone-{os.getpid()}")
    return Run(**values, serves_book=agents > 1 and values["rank"] == 0 and "book" not in given)


def _read_own(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read the variables GOSSAMER_…; an empty one counts as unset."""
    given: dict[str, Any] = {}
    for name in FIELDS:
        text = environ.get(PREFIX + name.upper())
        if text:
            try:
                given |= read_options(Run, "a run", {name: text})
            except UserError as error:
                raise UserError(f"{PREFIX}{name.upper()}: {error}") from None
    return given


def host_name() -> str:
    """Return a name shared by exactly the processes that see the same shared memory.

    Containers may share kernel, boot id and machine name, but by default not the file system of shared memory.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{socket.gethostname()}-{boot}-{SHARED_MEMORY.stat().st_dev}"
    except OSError:  # not Linux
        return socket.gethostname()
