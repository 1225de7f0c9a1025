"""Event files for TensorBoard."""

from collections.abc import Sequence
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from gossamer.run.folder import RunFolder
from gossamer.run.settings import Settings
from gossamer.train.loggers.logged_values import MOST_AGENTS, flatten, plain_settings


class TensorboardLogger:
    """Writes RUN/tensorboard: curves by step, and the settings with the final numbers as hyper-parameters."""

    def __init__(self, folder: RunFolder, settings: Settings, rows: Sequence[dict[str, Any]]) -> None:
        # Drop the points of steps that were lost in a crash after the last checkpoint.
        purge = int(rows[-1]["step"]) + 1 if rows else None
        self._writer = SummaryWriter(str(folder.path / "tensorboard"), purge_step=purge)
        self._settings = plain_settings(settings)

    def on_row(self, row: dict[str, Any]) -> None:
        """Add a point to each curve, and flush them."""
        few = len(row["accuracy"]) <= MOST_AGENTS
        for name, number in flatten(row, agents=few).items():
            if name != ("step",):
                self._writer.add_scalar("/".join(name), number, int(row["step"]))
        self._writer.flush()

    def close(self, summary: dict[str, Any] | None) -> None:
        """Close the file; add the hyper-parameters first, unless the run failed."""
        if summary is not None:
            ends = {f"end/{name[0]}": number for name, number in flatten(summary).items() if len(name) == 1}
            self._writer.add_hparams(self._settings, ends, run_name=".")  # write into the same folder
        self._writer.close()
