"""`gm.simulate`: one training run from Python. Each part is a name or an object."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.algorithms import Algorithm, parse_algorithm
from gossamer.algorithms.plugins import load_plugins
from gossamer.engine.make_training import make_training
from gossamer.engine.training import OnStep, Training
from gossamer.errors import UserError
from gossamer.network import Network
from gossamer.run.folder import RunFolder
from gossamer.run.metric_rows import LabelledRun, accuracy_curve
from gossamer.run.plan import NETWORK_SETTINGS
from gossamer.run.settings import SETTING_NAMES, make_settings
from gossamer.run.summary import Summary
from gossamer.shapes import Float, Tensor
from gossamer.tasks import Task
from gossamer.testbed import Testbed
from gossamer.train.loggers import check_log, logged
from gossamer.train.notebook_html import section, sparkline, table
from gossamer.train.progress import both, showing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The result of a run. A notebook shows it as a table.

    Attributes:
        summary: the content of `summary.json`: accuracies, loss, spread, bytes sent, status and more.
        history: one row per evaluation, as in `metrics.jsonl`.
        x: the agents' final parameters, one row per agent.
        run_dir: the run folder, or None.
        network: the network, with its clusters and its delay in steps.
    """

    summary: Summary
    history: list[dict[str, Any]]
    x: Float[Tensor, "n d"]
    run_dir: Path | None
    network: Network

    @property
    def accuracy(self) -> list[float | None]:
        """The final test accuracy of each agent, between 0 and 1."""
        return self.summary["accuracy_per_agent"]

    def as_run(self) -> LabelledRun:
        """Return the run in the form that reports use."""
        return LabelledRun(self.summary["algorithm"], self.summary["seed"], self.summary, self.history)

    def plot(self, axis: str | None = None) -> "Figure":
        """Draw accuracy, loss, spread and, if the rule predicts, the predict share.

        Args:
            axis: iterations, epochs, sim_seconds, seconds or megabytes. Without it, simulated seconds on a testbed,
                otherwise iterations.
        """
        from gossamer.report.plots import draw_quantities  # slow import: matplotlib

        return draw_quantities([self.as_run()], axis=axis)

    def __repr__(self) -> str:
        summary = self.summary
        return (
            f"Result({summary['algorithm']} on {summary['network']}, delay {summary['delay']}: accuracy "
            f"{100 * summary['accuracy_mean']:.2f} % over {summary['agents']} agents, {summary['status']})"
        )

    def _repr_html_(self) -> str:
        summary, run = self.summary, self.as_run()
        predict, age, spread = (summary[name] for name in ("predict_fraction", "message_age", "consensus_distance"))
        cells = {
            "algorithm": summary["algorithm"],
            "network": f"{summary['network']}, {summary['agents']} agents",
            "delay": summary["delay"],
            "accuracy": f"{100 * summary['accuracy_mean']:.1f} ± {100 * summary['accuracy_std']:.1f} %",
            "spread": f"{spread:.3f}",
            "predicts": "-" if predict is None else f"{100 * predict:.0f} %",
            "message age": "-" if age is None else f"{age:.1f}",
            "sent": f"{summary['bytes_sent'] / 1e6:.1f} MB",
            "time": f"{summary['seconds']:.1f} s",
            "status": summary["status"],
        }
        curve = sparkline(accuracy_curve(run), "accuracy over the run")
        return section(table(list(cells), [[*cells.values()]], curves=[curve]))


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
        network: a text such as "clusters:3,5", or an object from `gm.network`.
        algorithm: a text such as "pc-asgd/theta=pv", or an object from `gm.algorithm`.
        out: a new folder for config.toml, metrics.jsonl, summary.json and checkpoint.npz.
        on_step: called after every step with (steps done, new row of metrics or None).
        progress: True shows a progress bar; "auto" shows one in a notebook only.
        **settings: any setting of `gossamer train`, such as lr=0.05, epochs=5, seed=0, batch=16, momentum=0.9. If the
            algorithm is a text, also its options, such as theta="pv".
    """
    training = prepare(task, network, algorithm, settings)
    check_log(training.settings.log)
    if training.settings.log and out is None:
        raise UserError(f"log='{training.settings.log}' needs a folder for its files; give one with out=")
    folder = RunFolder.create(Path(out), training.settings, training.network) if out is not None else None
    with showing(progress) as begin:
        on_both = both(on_step, begin(training.algorithm.name, training.length))
        if folder is None:
            trained = training.run(None, on_both)
        else:
            with logged(folder, training.settings, []):
                trained = training.run(folder, on_both)
    result = Result(trained.summary, trained.history, trained.x, trained.run_dir, training.network)
    if result.summary["status"] != "finished":
        warnings.warn(result.summary["status"], RuntimeWarning, stacklevel=2)
    return result


def prepare(task: str | Task, network: str | Network, algorithm: str | Algorithm, settings: dict[str, Any]) -> Training:
    """Build the run. Refuse settings that belong to a given object."""
    load_plugins(settings.get("plugin"))
    settings, testbed = take_testbed(settings)
    names = names_of(task, network, settings)
    if isinstance(algorithm, str):
        rule, options = parse_algorithm(algorithm)
        names |= {"algorithm": rule, **options}
    elif not set(settings) <= set(SETTING_NAMES):
        option = min(set(settings) - set(SETTING_NAMES))
        raise UserError(f"'{option}' is not a setting of a run; give options of the algorithm to gm.algorithm(…)")
    return make_training(
        make_settings({**names, **settings}),
        task=task if isinstance(task, Task) else None,
        network=network if isinstance(network, Network) else None,
        algorithm=algorithm if isinstance(algorithm, Algorithm) else None,
        testbed=testbed,
    )


def take_testbed(settings: dict[str, Any]) -> tuple[dict[str, Any], Testbed | None]:
    """Return the settings with the text of a given testbed object in its place, and the object."""
    given = settings.get("testbed")
    return ({**settings, "testbed": given.spec}, given) if isinstance(given, Testbed) else (settings, None)


def names_of(task: str | Task, network: str | Network, settings: dict[str, Any]) -> dict[str, Any]:
    """Return task and network as settings if they are names. Refuse settings that belong to a given object."""
    inside_network = set(settings) & {"clusters", "delay", *NETWORK_SETTINGS}
    if isinstance(network, Network) and inside_network:
        name = min(inside_network)
        raise UserError(f"'{name}' belongs to the given network object; set it in gm.network(…)")
    if isinstance(task, Task) and "model" in settings:
        raise UserError("'model' belongs to the given task object; set it in gm.Task(…)")
    return {name: value for name, value in (("task", task), ("network", network)) if isinstance(value, str)}
