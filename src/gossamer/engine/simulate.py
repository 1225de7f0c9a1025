"""`gm.simulate`: one training run from Python, with names or objects for each part."""

import warnings
from pathlib import Path
from typing import Any

from gossamer.algorithms import Algorithm, parse_algorithm
from gossamer.engine.folder import RunFolder
from gossamer.engine.parts import NETWORK_SETTINGS
from gossamer.engine.settings import SETTING_NAMES, make_settings
from gossamer.engine.training import OnStep, Result, Training
from gossamer.errors import UserError
from gossamer.network import Network
from gossamer.tasks import Task


def simulate(
    task: str | Task = "digits",
    network: str | Network = "paper-1",
    algorithm: str | Algorithm = "pc-asgd",
    *,
    out: str | Path | None = None,
    on_step: OnStep | None = None,
    **settings: Any,
) -> Result:
    """Train N agents in the simulator and return their accuracies, a summary and the history.

    Args:
        task: a name such as "digits", or a `gm.Task` of your own.
        network: a text such as "clusters:3,5", or what `gm.network` returned.
        algorithm: a text such as "pc-asgd/theta=pv", or what `gm.algorithm` returned.
        out: a folder to write config.toml, metrics.jsonl, summary.json and checkpoint.npz into.
        on_step: called after every step with (steps done, the newest row of metrics or None).
        **settings: any setting of `gossamer train`, such as lr=0.05, epochs=5, seed=0, batch=16, momentum=0.9; with an
            algorithm given by name also its options, such as theta="pv".
    """
    names = {name: value for name, value in (("task", task), ("network", network)) if isinstance(value, str)}
    if isinstance(algorithm, str):
        rule, options = parse_algorithm(algorithm)
        names |= {"algorithm": rule, **options}
    elif not set(settings) <= set(SETTING_NAMES):
        option = min(set(settings) - set(SETTING_NAMES))
        raise UserError(f"'{option}' is no setting of a run; an option of the algorithm belongs in gm.algorithm(…)")
    inside_network = set(settings) & {"clusters", "delay", *NETWORK_SETTINGS}
    if isinstance(network, Network) and inside_network:
        name = min(inside_network)
        raise UserError(f"'{name}' is part of the network object that was given; set it in gm.network(…)")
    if isinstance(task, Task) and "model" in settings:
        raise UserError("'model' is part of the task object that was given; set it in gm.Task(…)")
    training = Training(
        make_settings({**names, **settings}),
        task=task if isinstance(task, Task) else None,
        network=network if isinstance(network, Network) else None,
        algorithm=algorithm if isinstance(algorithm, Algorithm) else None,
    )
    folder = RunFolder.create(Path(out), training.settings, training.network) if out is not None else None
    result = training.run(folder, on_step)
    if result.summary["status"] != "finished":
        warnings.warn(result.summary["status"], RuntimeWarning, stacklevel=2)
    return result
