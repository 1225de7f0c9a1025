"""Agents as actors of a Ray cluster, or of a Ray started on this machine.

Ray restarts dead actors by itself, on another machine if need be. Every machine needs the script at the same path, and
this package.
"""

import contextlib
import dataclasses
import logging
import math
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.algorithms.options import option
from gossamer.errors import UserError, unknown_name
from gossamer.run.agent_folder import Tail, log_path
from gossamer.run.cores import cores
from gossamer.runtime.book.addresses import is_loopback
from gossamer.runtime.launch.book_process import AgentStatuses, BookProcess
from gossamer.runtime.launch.child_processes import send_signal
from gossamer.runtime.launch.job import AgentOutcome, LaunchJob, LaunchReport, Watcher
from gossamer.runtime.launch.launcher import FINAL, TABLE, remove_shared_memory
from gossamer.runtime.launch.ray_agent import AgentPlace, RayAgent, RestartCounter
from gossamer.runtime.schedulers import LOOPBACK, own_address

LOOK = 1.0  # seconds to wait for news of the agents while they run
ELSEWHERE = "203.0.113.1"  # an address of no machine, to test for a network
OBJECT_STORE = 100 * 2**20  # bytes of shared memory for Ray's objects; almost none are stored
PLACEMENTS = ("SPREAD", "PACK")


@dataclass(frozen=True, kw_only=True)
class RayResources:
    """The resources of each agent, and the cluster's address."""

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
def connected(resources: RayResources, job: LaunchJob) -> Iterator[Any]:
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


def _connect(ray: Any, resources: RayResources, agents: int) -> None:
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


def _how(resources: RayResources, agents: int) -> dict[str, Any]:
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


class RayLauncher:
    """Runs a job's agents on Ray, and leaves the cluster as it was."""

    def __init__(self, job: LaunchJob, watcher: Watcher, resources: RayResources) -> None:
        self.job, self.watcher, self._resources = job, watcher, resources
        self._states = dict.fromkeys(job.ranks, "waiting")
        self._exits: dict[int, int | None] = dict.fromkeys(job.ranks)
        self._actors: list[Any] = []
        self._group: Any = None
        self._counter: Any = None
        self._places: dict[int, AgentPlace] = {}
        self._statuses: AgentStatuses | None = None

    def run(self, stop: Callable[[], object] = lambda: None) -> LaunchReport:
        """Run until every agent has ended or `stop` gives a reason."""
        begun, report = time.monotonic(), LaunchReport()
        book = BookProcess(self.job) if self.job.serves_book else None
        with connected(self._resources, self.job) as ray:
            try:
                self._check(ray)
                endpoint = self.job.run.book if book is None else book.start(stop)
                if endpoint and not stop():
                    self.job = self.job.with_book(endpoint)
                    self._statuses = AgentStatuses(self.job.run)
                    self._watch(ray, self._start(ray, stop), stop, book)
                report.interrupted = None in self._exits.values()
                if report.interrupted:
                    self._ask_to_end(ray)
                elif self._statuses is not None:
                    self._statuses.settle(rank for rank, status in self._exits.items() if status == 0)
            finally:
                self._clean(ray, book)
        statuses = self._statuses.newest() if self._statuses else {}
        for rank, status in self._exits.items():
            restarts = self._places[rank].restarts if rank in self._places else 0
            report.outcomes.append(AgentOutcome(rank, status, restarts, statuses.get(rank)))
        report.seconds = time.monotonic() - begun
        return report

    def _check(self, ray: Any) -> None:
        """Refuse resources that the cluster will never have."""
        machines = [node for node in ray.nodes() if node["Alive"]]
        if len(machines) > 1 and is_loopback(self.job.run.address):
            raise UserError(
                f"the cluster has {len(machines)} machines, which cannot reach {self.job.run.address}; "
                "give --address, the address of this machine"
            )
        if self._resources.ray_address is None:
            there, count = ray.cluster_resources(), len(self.job.ranks)
            for name, share in self._resources.of_one().items():
                if share * count > there.get(name, 0):
                    raise UserError(
                        f"{count} agents with {share:g} {name} each need {share * count:g}, this machine has "
                        f"{there.get(name, 0):g}; use less for each, or fewer agents"
                    )

    def _start(self, ray: Any, stop: Callable[[], object]) -> dict[Any, int]:
        """Reserve the resources, start the actors and return their references."""
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        share = self._resources.of_one()
        self._group = placement_group([share] * len(self.job.ranks), strategy=self._resources.placement)
        begun, announced = time.monotonic(), False
        while not self._group.wait(timeout_seconds=1):
            if stop():
                return {}
            if not announced and time.monotonic() - begun > 10:
                announced = True
                self.watcher.event(f"waiting for the cluster to have {len(self.job.ranks)} times {share}")
        key = None if self.job.run.key_file is None else Path(self.job.run.key_file).read_text(encoding="ascii")
        # Agents find it by name: Ray might lose an argument that it needs to start one again.
        name = f"gossamer-{self.job.run.run}"
        self._counter = (
            ray.remote(RestartCounter).options(name=name, num_cpus=0, max_restarts=-1, max_task_retries=-1).remote()
        )
        references = {}
        for place, rank in enumerate(self.job.ranks):
            actor = ray.remote(RayAgent).options(
                num_cpus=share.get("CPU", 0),
                num_gpus=share.get("GPU", 0),
                max_restarts=self.job.max_restarts,
                max_task_retries=self.job.max_restarts,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=place),
            )
            self._actors.append(actor.remote(self.job, rank, name, key))
            references[self._actors[-1].run.remote()] = rank
            self._states[rank] = "running"
        return references

    def _watch(
        self, ray: Any, references: dict[Any, int], stop: Callable[[], object], book: BookProcess | None
    ) -> None:
        """Follow the agents until all have ended."""
        tails = {
            rank: Tail(log_path(self.job.folder, rank)) for rank in self.job.ranks if self.watcher.listens_to(rank)
        }
        pending = list(references)
        while pending and not stop():
            ready, pending = ray.wait(pending, timeout=TABLE)
            for reference in ready:
                self._take(ray, reference, references[reference])
            self._look(ray, book, LOOK if pending else FINAL)  # the last one is what the report says
            for rank, tail in tails.items():
                lines = tail.read(whole=not pending)
                if lines:
                    self.watcher.output(rank, lines)

    def _take(self, ray: Any, reference: Any, rank: int) -> None:
        """Note how an agent ended."""
        try:
            self._exits[rank] = int(ray.get(reference))
            self._states[rank] = "done"
            # The process ends as a script's does: agents leave the run when Python ends.
            self._actors[self.job.ranks.index(rank)].__ray_terminate__.options(max_task_retries=0).remote()
        except Exception as error:  # what Ray raises when an actor has died for good, or could not be made
            self._exits[rank], self._states[rank] = 1, "failed"
            words = next(iter(str(error).strip().splitlines()), type(error).__name__)
            log = log_path(self.job.folder, rank)
            self.watcher.event(f"agent {rank} failed and is not restarted ({words}); its log is {log}")

    def _look(self, ray: Any, book: BookProcess | None, patience: float) -> None:
        """Report restarts of agents and book."""
        before = self._places
        self._find_places(ray, patience)
        for rank, place in self._places.items():
            if place.restarts > (before[rank].restarts if rank in before else 0):
                number = f"restart {place.restarts} of {self.job.max_restarts}"
                self.watcher.event(f"agent {rank} died and was restarted by Ray ({number})")
        if book is not None and book.look():
            self.watcher.event("the address book died and was restarted")
        self.watcher.status(self.rows())

    def _find_places(self, ray: Any, patience: float) -> None:
        if self._counter is not None:
            with contextlib.suppress(ray.exceptions.RayError):  # the counter may be restarting
                self._places = ray.get(self._counter.places.remote(), timeout=patience)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row an agent, as `Launcher.rows` does."""
        statuses = self._statuses.newest() if self._statuses else {}
        rows = []
        for rank in range(self.job.run.agents):
            restarts = self._places[rank].restarts if rank in self._places else 0
            state = self._states.get(rank, "elsewhere")
            rows.append({"rank": rank, **statuses.get(rank, {}), "state": state, "restarts": restarts})
        return rows

    def _ask_to_end(self, ray: Any) -> None:
        """Send SIGTERM to every agent that runs, wherever that is, and give them time."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._find_places(ray, FINAL)
        here = ray.get_runtime_context().get_node_id()
        for place in self._places.values():
            if place.node == here:
                send_signal(place.pid, signal.SIGTERM)
            else:
                there = NodeAffinitySchedulingStrategy(place.node, soft=True)
                ray.remote(send_signal).options(num_cpus=0, scheduling_strategy=there).remote(
                    place.pid, int(signal.SIGTERM)
                )
        deadline = time.monotonic() + FINAL / 2
        while _alive(self._places, here) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _clean(self, ray: Any, book: BookProcess | None) -> None:
        from ray.util.placement_group import remove_placement_group

        for actor in (*self._actors, *([] if self._counter is None else [self._counter])):
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(actor, no_restart=True)
        if self._group is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                remove_placement_group(self._group)
        if self._statuses is not None:
            self._statuses.close()
        if book is not None:
            book.stop()
        remove_shared_memory(self.job.run.run)


def _alive(places: dict[int, AgentPlace], here: str) -> bool:
    """Say whether an agent on this machine still runs."""
    return any(place.node == here and Path(f"/proc/{place.pid}").exists() for place in places.values())


def run_on_ray(job: LaunchJob, watcher: Watcher, resources: RayResources, stop: Callable[[], object]) -> LaunchReport:
    """Run a job's agents on Ray, with absolute paths, since Ray's processes have another working folder."""
    absolute = dataclasses.replace(job, folder=job.folder.resolve(), script=job.script.resolve())
    return RayLauncher(absolute, watcher, resources).run(stop)
