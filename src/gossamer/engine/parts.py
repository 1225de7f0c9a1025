"""The parts of a run, made from its settings, and the settings completed from its parts."""

import contextlib
import dataclasses
from collections.abc import Iterator

import torch

from gossamer.algorithms import Algorithm
from gossamer.engine.settings import Settings
from gossamer.errors import UserError
from gossamer.network import Network, network
from gossamer.tasks import Task

DEFAULT_DELAY = "20"  # the paper's
NETWORK_SETTINGS = ("loss", "mixing", "lazy", "clip_weights", "reliable_delay", "startup")  # fields of Network too


@contextlib.contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Use this many threads for a while: the bytes of a run depend on it, so it is a setting and not the machine's."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def make_network(settings: Settings) -> Network:
    """Make the network that the settings describe; a file may bring its own delay, else the paper's is the default."""
    delay = settings.delay
    if delay is None and not settings.network.startswith("file:"):
        delay = DEFAULT_DELAY
    shared = {name: getattr(settings, name) for name in NETWORK_SETTINGS}
    return network(settings.network, delay, clusters=settings.clusters, **shared)


def complete_settings(settings: Settings, task: Task, network: Network, algorithm: Algorithm) -> Settings:
    """Write every part that was given as an object, and every default of the algorithm, into the settings."""
    return dataclasses.replace(
        settings,
        task=task.name,
        model=task.model_name,
        network=network.spec,
        clusters=_clusters_text(network),
        delay=network.delay.spec(),
        algorithm=algorithm.name,
        options={field.name: getattr(algorithm, field.name) for field in dataclasses.fields(algorithm)},
        **{name: getattr(network, name) for name in NETWORK_SETTINGS},
    )


def _clusters_text(network: Network) -> str | None:
    """Return the clusters that were given, as text: members, or for a single cluster its size."""
    if network.clusters is None or not network.clusters_given:
        return None
    if len(network.clusters) == 1:
        return str(network.num_agents)
    return "/".join(",".join(map(str, members)) for members in network.clusters)


def check_device(device: str) -> str:
    """Return the device, or say that it is not there."""
    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, ImportError, NotImplementedError):
        raise UserError(f"device '{device}' is not available here; use cpu") from None
    return device
