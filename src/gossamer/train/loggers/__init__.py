"""`--log csv,tensorboard,wandb`: copies each row of metrics.jsonl. A logger that fails never stops the run."""

import contextlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from gossamer.errors import UserError, unknown_name
from gossamer.run.folder import RunFolder
from gossamer.run.settings import Settings

__all__ = ["LOGGERS", "check_log", "logged"]


class Logger(Protocol):
    """Made from a folder, the run's settings and the rows of an earlier part of it."""

    def on_row(self, row: dict[str, Any]) -> None:
        """Take a row that metrics.jsonl has."""

    def close(self, summary: dict[str, Any] | None) -> None:
        """End; without a summary when the run broke off."""


Make = Callable[[RunFolder, Settings, Sequence[dict[str, Any]]], Logger]


def _csv() -> Make:
    from gossamer.train.loggers.spreadsheet import CsvLogger

    return CsvLogger


def _tensorboard() -> Make:
    from gossamer.train.loggers.tensorboard import TensorboardLogger  # slow to import, and not always there

    return TensorboardLogger


def _wandb() -> Make:
    from gossamer.train.loggers.weights_and_biases import WandbLogger  # the same

    return WandbLogger


LOGGERS: dict[str, Callable[[], Make]] = {"csv": _csv, "tensorboard": _tensorboard, "wandb": _wandb}


def check_log(text: str | None) -> list[str]:
    """Return the loggers of 'csv,wandb', or say which is unknown or lacks its package; before anything is trained."""
    names = list(dict.fromkeys(part.strip() for part in (text or "").split(",") if part.strip()))
    for name in names:
        if name not in LOGGERS:
            raise unknown_name("logger", name, LOGGERS)
        if name != "csv" and importlib.util.find_spec(name) is None:
            raise UserError(f'--log {name} needs a package; install it with: pip install "gossamer[log]"')
    return names


@contextlib.contextmanager
def logged(folder: RunFolder, settings: Settings, rows: Sequence[dict[str, Any]]) -> Iterator[None]:
    """Within the context every row that the folder takes goes to the loggers that the settings name.

    `rows` are those of an earlier part of the run. The loggers get the folder's summary at the end.
    """
    loggers = [_Contained(name, folder, settings, rows) for name in check_log(settings.log)]
    folder.listeners += [logger.on_row for logger in loggers]
    summary = None
    try:
        yield
        summary = folder.read_summary()
    finally:
        folder.listeners.clear()
        for logger in loggers:
            logger.close(summary)


class _Contained:
    """A logger that cannot harm the run: the first thing that goes wrong is told in a line, and it is left alone."""

    def __init__(self, name: str, folder: RunFolder, settings: Settings, rows: Sequence[dict[str, Any]]) -> None:
        self._name = name
        self._logger: Logger | None = None
        self._last = int(rows[-1]["step"]) if rows else -1
        with self._told():
            self._logger = LOGGERS[name]()(folder, settings, rows)

    def on_row(self, row: dict[str, Any]) -> None:
        """Pass a row on unless one of its step was there before, as when agents' rows are gathered once more."""
        if self._logger is not None and row["step"] > self._last:
            self._last = row["step"]
            with self._told():
                self._logger.on_row(row)

    def close(self, summary: dict[str, Any] | None) -> None:
        """Close it."""
        if self._logger is not None:
            with self._told():
                self._logger.close(summary)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._logger = None
            said = " ".join(f"{type(error).__name__}: {error}".split())
            message = f"--log {self._name} has failed and is left out ({said:.200}); metrics.jsonl has every row"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
