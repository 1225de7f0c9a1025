"""Reaching a Ray cluster, or starting a Ray on this machine, and leaving it."""

import contextlib
import logging
import math
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gossamer.algorithms.options import option
from gossamer.errors import UserError, unknown_name
from gossamer.runtime.launch.job import LaunchJob, cores
from gossamer.runtime.schedulers import LOOPBACK, own_address

ELSEWHERE = "203.0.113.1"  # an address of no machine, to test for a network
OBJECT_STORE = 100 * 2**20  # bytes of shared memory for Ray's objects, of which there are none to speak of
PLACEMENTS = ("SPREAD", "PACK")


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources of each agent, and the cluster's address."""

    ray_address: str | None = option(None, "address of a Ray cluster, or auto (default: start Ray on this machine)")
    cpus_per_agent: float = option(1.0, "cores reserved for an agent; fractions are allowed")
    gpus_per_agent: float = option(0.0, "GPUs of an agent; fractions are allowed")
    placement: str = option("SPREAD", "spread agents over the machines, or pack them together", choices=PLACEMENTS)

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("cpus_per_agent", "gpus_per_agent"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"{name} must be 0 or more, got {getattr(self, name):g}")
        if self.placement not in PLACEMENTS:
            raise unknown_name("placement", self.placement, PLACEMENTS)

    def of_one(self) -> dict[str, float]:
        """Return one agent's share, as Ray writes it."""
        share = {"CPU": self.cpus_per_agent, "GPU": self.gpus_per_agent}
        return {name: value for name, value in share.items() if value} or {"CPU": 0.001}  # a bundle may not be empty


@contextlib.contextmanager
def connected(resources: Resources, job: LaunchJob) -> Iterator[Any]:
    """Yield Ray, connected; shut it down at the end, unless it ran before.

    Ray takes SIGTERM for itself and writes to standard output, which may be reserved for JSON: both are undone.
    """
    try:
        import ray
    except ImportError:
        raise UserError('Ray is not installed; install it with: pip install "gossamer[ray]"') from None
    with (job.folder / "ray.log").open("a", encoding="utf-8") as log, contextlib.redirect_stdout(log):
        if ray.is_initialized():
            yield ray
            return
        _connect(ray, resources, len(job.ranks))
        try:
            yield ray
        finally:
            ray.shutdown()


def _connect(ray: Any, resources: Resources, agents: int) -> None:
    """Reach or start a cluster, and take back the signals."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(**_how(resources, agents), log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        words, where = " ".join(str(error).split()), resources.ray_address or "local"
        raise UserError(f"cannot use Ray at '{where}' ({words:.200}); check --ray-address") from None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _how(resources: Resources, agents: int) -> dict[str, Any]:
    """Return the arguments of ray.init: a cluster's address, or a local Ray that all agents fit into."""
    if resources.ray_address is not None:
        return {"address": resources.ray_address}
    options: dict[str, Any] = {
        "address": "local",
        "include_dashboard": False,
        "num_cpus": max(cores(), math.ceil(agents * resources.cpus_per_agent)),
        "object_store_memory": OBJECT_STORE,
    }
    try:
        own_address(ELSEWHERE)
    except UserError:
        options["_node_ip_address"] = LOOPBACK
    return options
