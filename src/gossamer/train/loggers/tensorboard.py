"""Event files for TensorBoard."""

from collections.abc import Sequence
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from gossamer.run.folder import RunFolder
from gossamer.run.settings import Settings
from gossamer.train.loggers.logged_values import MOST_AGENTS, flatten, plain_settings


class TensorboardLogger:
    """Writes into RUN/tensorboard: curves by step, and the settings with the last numbers as hyper-parameters."""

    def __init__(self, folder: RunFolder, settings: Settings, rows: Sequence[dict[str, Any]]) -> None:
        # Steps that a run has taken and lost, as by a crash after its last checkpoint, are taken back.
        purge = int(rows[-1]["step"]) + 1 if rows else None
        self._writer = SummaryWriter(str(folder.path / "tensorboard"), purge_step=purge)
        self._settings = plain_settings(settings)

    def on_row(self, row: dict[str, Any]) -> None:
        """Add a point to each curve, and show them."""
        few = len(row["accuracy"]) <= MOST_AGENTS
        for name, number in flatten(row, agents=few).items():
            if name != ("step",):
                self._writer.add_scalar("/".join(name), number, int(row["step"]))
        self._writer.flush()

    def close(self, summary: dict[str, Any] | None) -> None:
        """Add the hyper-parameters to a run that has ended by itself."""
        if summary is not None:
            ends = {f"end/{name[0]}": number for name, number in flatten(summary).items() if len(name) == 1}
            self._writer.add_hparams(self._settings, ends, run_name=".")  # not a folder of its own
        self._writer.close()
