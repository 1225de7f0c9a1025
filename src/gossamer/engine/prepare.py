"""A run from Python, ready to train: names or objects for each part, as `gm.simulate` and `gm.compare` take them."""

from typing import Any

from gossamer.algorithms import Algorithm, parse_algorithm
from gossamer.algorithms.plugins import load_plugins
from gossamer.engine.training import Training
from gossamer.errors import UserError
from gossamer.network import Network
from gossamer.run.plan import NETWORK_SETTINGS
from gossamer.run.settings import SETTING_NAMES, make_settings
from gossamer.tasks import Task


def prepare(task: str | Task, network: str | Network, algorithm: str | Algorithm, settings: dict[str, Any]) -> Training:
    """Return the run; refuse settings that an object which was given has inside."""
    load_plugins(settings.get("plugin"))
    names = names_of(task, network, settings)
    if isinstance(algorithm, str):
        rule, options = parse_algorithm(algorithm)
        names |= {"algorithm": rule, **options}
    elif not set(settings) <= set(SETTING_NAMES):
        option = min(set(settings) - set(SETTING_NAMES))
        raise UserError(f"'{option}' is no setting of a run; an option of the algorithm belongs in gm.algorithm(…)")
    return Training(
        make_settings({**names, **settings}),
        task=task if isinstance(task, Task) else None,
        network=network if isinstance(network, Network) else None,
        algorithm=algorithm if isinstance(algorithm, Algorithm) else None,
    )


def names_of(task: str | Task, network: str | Network, settings: dict[str, Any]) -> dict[str, Any]:
    """Return task and network as settings where they are names; objects must not be set twice."""
    inside_network = set(settings) & {"clusters", "delay", *NETWORK_SETTINGS}
    if isinstance(network, Network) and inside_network:
        name = min(inside_network)
        raise UserError(f"'{name}' is part of the network object that was given; set it in gm.network(…)")
    if isinstance(task, Task) and "model" in settings:
        raise UserError("'model' is part of the task object that was given; set it in gm.Task(…)")
    return {name: value for name, value in (("task", task), ("network", network)) if isinstance(value, str)}
