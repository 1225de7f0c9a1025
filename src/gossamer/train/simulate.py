"""`gm.simulate`: one training run from Python, with names or objects for each part."""

import warnings
from pathlib import Path
from typing import Any

from gossamer.algorithms import Algorithm
from gossamer.engine.prepare import prepare
from gossamer.engine.training import OnStep
from gossamer.errors import UserError
from gossamer.network import Network
from gossamer.run.folder import RunFolder
from gossamer.tasks import Task
from gossamer.train.loggers import check_log, logged
from gossamer.train.progress import both, showing
from gossamer.train.result import Result


def simulate(
    task: str | Task = "digits",
    network: str | Network = "paper-1",
    algorithm: str | Algorithm = "pc-asgd",
    *,
    out: str | Path | None = None,
    on_step: OnStep | None = None,
    progress: bool | str = "auto",
    **settings: Any,
) -> Result:
    """Train N agents in the simulator and return their accuracies, a summary and the history.

    Args:
        task: a name such as "digits", or a `gm.Task` of your own.
        network: a text such as "clusters:3,5", or what `gm.network` returned.
        algorithm: a text such as "pc-asgd/theta=pv", or what `gm.algorithm` returned.
        out: a folder to write config.toml, metrics.jsonl, summary.json and checkpoint.npz into.
        on_step: called after every step with (steps done, the newest row of metrics or None).
        progress: True shows how far the run is; "auto" does so in a notebook, where a widget fits.
        **settings: any setting of `gossamer train`, such as lr=0.05, epochs=5, seed=0, batch=16, momentum=0.9; with an
            algorithm given by name also its options, such as theta="pv".
    """
    training = prepare(task, network, algorithm, settings)
    check_log(training.settings.log)
    if training.settings.log and out is None:
        raise UserError(f"log='{training.settings.log}' is written beside a run's other files; name a folder with out=")
    folder = RunFolder.create(Path(out), training.settings, training.network) if out is not None else None
    with showing(progress) as shown:
        on_both = both(on_step, shown.begin(training.algorithm.name, training.steps))
        if folder is None:
            found = training.run(None, on_both)
        else:
            with logged(folder, training.settings, []):
                found = training.run(folder, on_both)
    result = Result(found.summary, found.history, found.x, found.run_dir, training.network)
    if result.summary["status"] != "finished":
        warnings.warn(result.summary["status"], RuntimeWarning, stacklevel=2)
    return result
