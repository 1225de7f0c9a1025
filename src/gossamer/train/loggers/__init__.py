"""`--log csv,tensorboard,wandb`: loggers copy each row of metrics.jsonl. A failing logger never stops the run."""

import contextlib
import importlib
import importlib.util
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from gossamer.errors import UserError, unknown_name
from gossamer.run.folder import RunFolder
from gossamer.run.settings import Settings

__all__ = ["LOGGERS", "check_log", "logged"]


# By name: a module of this package and its class. Imported when used, as some are slow and need an optional package.
LOGGERS = {
    "csv": ("spreadsheet", "CsvLogger"),
    "tensorboard": ("tensorboard", "TensorboardLogger"),
    "wandb": ("weights_and_biases", "WandbLogger"),
}


def check_log(text: str | None) -> list[str]:
    """Return the loggers of 'csv,wandb'. Refuse an unknown one, or one whose package is missing, before training."""
    names = list(dict.fromkeys(part.strip() for part in (text or "").split(",") if part.strip()))
    for name in names:
        if name not in LOGGERS:
            raise unknown_name("logger", name, LOGGERS)
        if name != "csv" and importlib.util.find_spec(name) is None:
            raise UserError(f'--log {name} needs a package; install it with: pip install "gossamer[log]"')
    return names


@contextlib.contextmanager
def logged(folder: RunFolder, settings: Settings, rows: Sequence[dict[str, Any]]) -> Iterator[None]:
    """Within the context, pass every new row of the folder to the loggers of the settings.

    `rows` are the rows of an earlier part of the run. At the end the loggers get the summary.
    """
    loggers = [_GuardedLogger(name, folder, settings, rows) for name in check_log(settings.log)]
    folder.listeners += [logger.on_row for logger in loggers]
    summary = None
    try:
        yield
        summary = folder.read_summary()
    finally:
        folder.listeners.clear()
        for logger in loggers:
            logger.close(summary)


class _GuardedLogger:
    """Wraps a logger so that it cannot stop the run. At its first error, warn once and drop the logger.

    A logger is made from the run folder, the settings and the rows of an earlier part of the run. It has `on_row(row)`
    and `close(summary)`; the summary is None if the run failed.
    """

    def __init__(self, name: str, folder: RunFolder, settings: Settings, rows: Sequence[dict[str, Any]]) -> None:
        self._name = name
        self._logger: Any = None
        self._last = int(rows[-1]["step"]) if rows else -1
        with self._guarded():
            module, made = LOGGERS[name]
            self._logger = getattr(importlib.import_module(f"{__name__}.{module}"), made)(folder, settings, rows)

    def on_row(self, row: dict[str, Any]) -> None:
        """Log a row, unless its step is logged already: rows of agents may be merged again after a restart."""
        if self._logger is not None and row["step"] > self._last:
            self._last = row["step"]
            with self._guarded():
                self._logger.on_row(row)

    def close(self, summary: dict[str, Any] | None) -> None:
        """Close the logger."""
        if self._logger is not None:
            with self._guarded():
                self._logger.close(summary)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._logger = None
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            message = f"--log {self._name} failed and is switched off ({reason:.200}); metrics.jsonl has every row"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
