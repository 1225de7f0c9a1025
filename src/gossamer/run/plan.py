"""The plan of a run, made before anything large is allocated: task, network, rule, shards and number of steps."""

import dataclasses
import math
import warnings
from dataclasses import dataclass

import torch

from gossamer.algorithms import Algorithm
from gossamer.algorithms import algorithm as make_algorithm
from gossamer.data import partition
from gossamer.data.device_batches import DeviceBatches
from gossamer.errors import StabilityWarning, UserError
from gossamer.network import Network, Scaled, broadcast
from gossamer.network import network as network_of
from gossamer.run.settings import Settings
from gossamer.run.testbed_network import network_on
from gossamer.shapes import Float, Tensor
from gossamer.state.local import Schedule
from gossamer.tasks import Task, make_task
from gossamer.testbed import Testbed
from gossamer.testbed import testbed as make_testbed

NETWORK_SETTINGS = ("loss", "mixing", "lazy", "clip_weights", "reliable_delay", "startup")  # fields of Network too


@dataclass(frozen=True, eq=False)
class Plan:
    """The parts of a run, made from its settings and checked against each other. Both engines use it."""

    settings: Settings
    task: Task
    algorithm: Algorithm
    network: Network
    shards: list[Tensor]
    steps_per_epoch: int
    tau: int | None = None  # None unless the clusters were discovered
    testbed: Testbed | None = None

    @property
    def steps(self) -> int:
        """The number of steps of the whole run."""
        return self.settings.epochs * self.steps_per_epoch

    @property
    def schedule(self) -> Schedule:
        """The learning-rate schedule."""
        settings = self.settings
        return Schedule(settings.lr, settings.schedule, self.steps, self.steps_per_epoch, settings.warmup)

    @property
    def share(self) -> Float[Tensor, " n"]:
        """The size of each agent's shard, divided by the mean size."""
        sizes = [len(shard) for shard in self.shards]
        return torch.tensor(sizes) / (sum(sizes) / len(sizes))


def make_plan(
    settings: Settings,
    *,
    task: Task | None = None,
    network: Network | None = None,
    algorithm: Algorithm | None = None,
    testbed: Testbed | None = None,
) -> Plan:
    """Make the parts. Refuse those that do not fit together."""
    task = task or make_task(settings.task, settings.model, settings.data_dir)
    if settings.validation:
        task = task.held_out(settings.validation, settings.seed)
    algorithm = algorithm or make_algorithm(settings.algorithm, **settings.options)
    network = network or make_network(settings)
    if testbed is None and settings.testbed is not None:
        testbed = make_testbed(settings.testbed)
    if testbed is not None:
        testbed = dataclasses.replace(testbed, step_seconds=testbed.step_seconds * settings.step_seconds)
        network = _on_testbed(testbed, network, algorithm, task, settings)
    settings = complete_settings(settings, task, network, algorithm, testbed)
    shards = partition(settings.partition, task.train.y, network.num_agents, settings.seed)
    examples = sum(map(len, shards)) / len(shards) if settings.epoch_unit == "shard" else len(task.train)
    steps_per_epoch = math.ceil(examples / settings.batch)
    return _fitted(Plan(settings, task, algorithm, network, shards, steps_per_epoch, testbed=testbed))


def _on_testbed(testbed: Testbed, network: Network, algorithm: Algorithm, task: Task, settings: Settings) -> Network:
    """Return the network with the delay in steps that the testbed implies."""
    size, itemsize = task.fresh_module(settings.seed).size, getattr(torch, settings.dtype).itemsize
    plain = not settings.momentum and not settings.weight_decay
    return network_on(testbed, network, algorithm, size=size, itemsize=itemsize, plain=plain)


def _fitted(plan: Plan) -> Plan:
    """Convert the delay to steps, check that the run is longer, and discover clusters and tau if none are given."""
    settings, algorithm, network, tau = plan.settings, plan.algorithm, plan.network, plan.tau
    if settings.delay_unit == "epoch":
        network = network.changed(delay=Scaled(network.delay, plan.steps_per_epoch))
    if algorithm.waits:
        return dataclasses.replace(plan, network=network)
    longest = max(network.delay.typical, network.reliable_delay)
    if longest >= plan.steps and plan.testbed is None:
        raise UserError(
            f"a delay of {longest} steps is no shorter than the run of {plan.steps} steps "
            f"({settings.epochs} epochs of {plan.steps_per_epoch}); use more --epochs or a smaller --delay"
        )
    if network.clusters is None:
        found = broadcast(network, settings.seed)
        network, tau = network.with_clusters(found.clusters), found.tau
    if warning := algorithm.check(network, momentum=settings.momentum):
        warnings.warn(warning, StabilityWarning, stacklevel=4)
    return dataclasses.replace(plan, network=network, tau=tau)


def batches_of(settings: Settings, task: Task, shards: list[Tensor], purpose: str, dtype: torch.dtype) -> DeviceBatches:
    """Return the agents' mini-batches; each purpose has its own order of the examples."""
    return DeviceBatches(
        task.train,
        task.inputs,
        shards,
        settings.batch,
        settings.seed,
        settings.device,
        dtype,
        augment=settings.augment == "crop-flip",
        purpose=purpose,
    )


def make_network(settings: Settings) -> Network:
    """Make the network from the settings."""
    shared = {name: getattr(settings, name) for name in NETWORK_SETTINGS}
    return network_of(
        settings.network,
        settings.delay_or_default,
        clusters=settings.clusters,
        schedule=settings.graph_schedule,
        **shared,
    )


def complete_settings(
    settings: Settings, task: Task, network: Network, algorithm: Algorithm, testbed: Testbed | None = None
) -> Settings:
    """Return the settings with the values of given objects and of the defaults of algorithm and task."""
    if testbed is not None:
        settings = dataclasses.replace(settings, testbed=testbed.spec)
    return dataclasses.replace(
        settings,
        augment=_augment(settings, task),
        task=task.name,
        model=task.model_name,
        network=network.spec,
        clusters=_clusters_text(network),
        delay=network.delay.spec() if testbed is None else None,
        graph_schedule=None if network.schedule is None else network.schedule.spec(),
        algorithm=algorithm.name,
        options={field.name: getattr(algorithm, field.name) for field in dataclasses.fields(algorithm)},
        **{name: getattr(network, name) for name in NETWORK_SETTINGS},
    )


def _augment(settings: Settings, task: Task) -> str:
    """Return whether to crop and flip images; refuse it for inputs that are not images."""
    augment = settings.augment
    if augment == "auto":
        augment = "crop-flip" if task.augments else "none"
    if augment == "crop-flip" and task.train.x.dim() != 4:
        raise UserError(
            f"augment=crop-flip needs images, but the inputs of {task.name} are not images; use augment=none"
        )
    return augment


def _clusters_text(network: Network) -> str | None:
    """Return the given clusters as text: their members, or the size of a single cluster."""
    if network.clusters is None or not network.clusters_given:
        return None
    if len(network.clusters) == 1:
        return str(network.num_agents)
    return "/".join(",".join(map(str, members)) for members in network.clusters)
