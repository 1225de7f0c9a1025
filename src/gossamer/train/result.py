"""What `gm.simulate` gives back: a run that can be looked at.

The engine's own result knows neither pictures nor pages, as nothing below the experiments does.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossamer.engine import training
from gossamer.network import Network
from gossamer.report.runs import Run, accuracy_curve
from gossamer.train.notebook_html import section, sparkline, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Result(training.Result):
    """A run; a notebook shows it as a table.

    Attributes:
        summary: what `summary.json` holds: accuracies, loss, disagreement, bytes sent, status and more.
        history: one row an evaluation, as in `metrics.jsonl`.
        x: the agents' last parameters, a row each.
        run_dir: the folder that was written, if any.
        network: as the agents met it.
    """

    network: Network | None = None

    def as_run(self) -> Run:
        """Return the run as reports take it."""
        return Run(self.summary["algorithm"], self.summary["seed"], self.summary, self.history)

    def plot(self) -> "Figure":
        """Draw accuracy, loss, the distance between agents and, where there is one, the share of predicting."""
        from gossamer.report.plots import draw_quantities  # matplotlib is slow to import: only when it draws

        return draw_quantities([self.as_run()])

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
