"""The environment variables of torchrun and Slurm: rank, number of agents, and the first agent's address.

Each reader returns values of `environment.Run`, or nothing under another launcher. The extra value "toward" is
another machine of the run, if any, which shows an agent its own address.
"""

import re
import socket
from collections.abc import Mapping
from typing import Any

from gossamer.errors import UserError, read_whole
from gossamer.runtime.book.addresses import join_endpoint

LOOPBACK = "127.0.0.1"
LAST_PORT = 65_535
# Slurm's jobs share these ports, below those that Linux gives to outgoing connections.
FIRST_JOB_PORT, JOB_PORTS = 15_000, 15_000


def read_torchrun(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read what one torchrun with many workers says; the book is at MASTER_ADDR, at the port after MASTER_PORT."""
    if not environ.get("RANK") or not environ.get("WORLD_SIZE"):
        return {}
    rank, agents = (_whole(environ, name) for name in ("RANK", "WORLD_SIZE"))
    found: dict[str, Any] = {"rank": rank, "agents": agents, "restarts": torchrun_restarts(environ)}
    if agents == 1:
        return found
    if not environ.get("MASTER_ADDR") or not environ.get("MASTER_PORT"):
        raise UserError("RANK and WORLD_SIZE are set but MASTER_ADDR or MASTER_PORT is not; start with torchrun")
    port = _whole(environ, "MASTER_PORT")
    # Without an id torchrun writes "none"; then the port tells one run of a machine from another.
    name = environ.get("TORCHELASTIC_RUN_ID", "none")
    one_machine = environ.get("LOCAL_WORLD_SIZE") == environ["WORLD_SIZE"]
    book = LOOPBACK if one_machine else environ["MASTER_ADDR"]
    found |= {
        "run": to_run_id(f"torchrun-{port if name in ('', 'none') else name}"),
        "book": join_endpoint(book, port + 1 if port < LAST_PORT else port - 1),
    }
    return found if one_machine else {**found, "toward": book}


def torchrun_restarts(environ: Mapping[str, str]) -> int:
    """Return how often torchrun has started this worker again."""
    return _whole(environ, "TORCHELASTIC_RESTART_COUNT") if environ.get("TORCHELASTIC_RESTART_COUNT") else 0


def read_slurm(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read what srun says to each task of a step; task 0 is on the step's first node and serves the book.

    A batch script, and a shell of salloc, have SLURM_PROCID as well and are alone all the same: the script is part of
    no step of srun's, the shell is the only task of its own. SLURM_LAUNCH_NODE_IPADDR comes last, as it is where srun
    was called, which may be a login node.
    """
    step = environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID")
    if not environ.get("SLURM_PROCID") or not step:
        return {}
    agents = _whole(environ, "SLURM_STEP_NUM_TASKS" if environ.get("SLURM_STEP_NUM_TASKS") else "SLURM_NTASKS")
    if agents <= 1:
        return {}
    job = _whole(environ, "SLURM_JOB_ID")
    nodes = expand_nodes(environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or "")
    first = nodes[0] if nodes else environ.get("SLURM_LAUNCH_NODE_IPADDR")
    if not first:
        raise UserError("SLURM_JOB_NODELIST is not set, so the address of agent 0 is unknown; set GOSSAMER_BOOK")
    found = {
        "rank": _whole(environ, "SLURM_PROCID"),
        "agents": agents,
        "run": to_run_id(f"slurm-{job}-{step}"),
        "book": join_endpoint(LOOPBACK if len(nodes) == 1 else first, job_port(job, int(step))),
        "restarts": _whole(environ, "SLURM_RESTART_COUNT") if environ.get("SLURM_RESTART_COUNT") else 0,
    }
    if len(nodes) == 1:
        return found
    return {**found, "toward": nodes[1] if len(nodes) > 1 and environ.get("SLURMD_NODENAME") == first else first}


def job_port(job: int, step: int) -> int:
    """Return the port of the address book of a step of a Slurm job: the same for all its tasks."""
    return FIRST_JOB_PORT + (31 * job + step) % JOB_PORTS


def expand_nodes(text: str) -> list[str]:
    """Return the names in a list of Slurm's: 'node[03-05,9],gpu' is node03, node04, node05, node9 and gpu."""
    nodes: list[str] = []
    for part in re.findall(r"(?:\[[^\]]*\]|[^,\[\]])+", text):
        nodes += _expand(part.strip(), text)
    if text.count("[") != text.count("]") or re.search(r"\[[^\]]*\[|\[\]", text):
        raise _garbled(text)
    return nodes


def _expand(part: str, text: str) -> list[str]:
    """Expand the first brackets of one name, then what follows them."""
    before, opening, rest = part.partition("[")
    if not opening:
        return [part] if part else []
    inside, _, after = rest.partition("]")
    numbers: list[str] = []
    for item in inside.split(","):
        low, dash, high = item.strip().partition("-")
        if not low.isdecimal() or (dash and (not high.isdecimal() or int(high) < int(low))):
            raise _garbled(text)
        # A first number of two digits keeps its zeros: 03-11 is 03, 04, …, 11.
        numbers += [str(n).zfill(len(low)) for n in range(int(low), int(high or low) + 1)]
    return [before + number + end for number in numbers for end in (_expand(after, text) or [""])]


def own_address(toward: str) -> str:
    """Return the address of this machine on the way to another one; nothing is sent there."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(toward, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise UserError(
            f"cannot find this machine's address on the way to '{toward}' ({error.strerror}); set GOSSAMER_ADDRESS"
        ) from None


def to_run_id(text: str) -> str:
    """Return a text as the name of a run: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-") or "run"


def _whole(environ: Mapping[str, str], name: str) -> int:
    return read_whole(name, environ.get(name, ""))


def _garbled(text: str) -> UserError:
    return UserError(f"cannot read the nodes '{text}'; Slurm writes them like node[03-05,9]")
