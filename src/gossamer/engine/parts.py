"""The parts of a run, made from its settings, and the settings completed from its parts."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator

import torch

from gossamer.algorithms import Algorithm
from gossamer.engine.allocator import kept_memory
from gossamer.engine.settings import Settings
from gossamer.errors import UserError
from gossamer.network import Network, network
from gossamer.tasks import Task

DEFAULT_DELAY = "20"  # the paper's
NETWORK_SETTINGS = ("loss", "mixing", "lazy", "clip_weights", "reliable_delay", "startup")  # fields of Network too


@contextlib.contextmanager
def arithmetic(settings: Settings) -> Iterator[None]:
    """Compute as the settings say for a while: the bytes of a run depend on it, so it is not left to the machine."""
    cudnn = torch.backends.cudnn
    threads, matmul = torch.get_num_threads(), torch.get_float32_matmul_precision()
    benchmark, deterministic = cudnn.benchmark, torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(settings.threads)
    torch.set_float32_matmul_precision("highest")  # of the rules; models have their own (execution)
    cudnn.benchmark = not settings.deterministic
    if settings.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or cuBLAS refuses
        torch.use_deterministic_algorithms(True)
    try:
        with kept_memory() if settings.device == "cpu" else contextlib.nullcontext():
            yield
    except RuntimeError as error:
        if settings.deterministic and "deterministic" in str(error):
            raise UserError(f"{str(error).splitlines()[0].split(',')[0]}; leave --deterministic out") from None
        raise
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(matmul)
        cudnn.benchmark = benchmark
        if settings.deterministic:  # else nothing is to be undone, and the call imports torch's compiler
            torch.use_deterministic_algorithms(deterministic)


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
