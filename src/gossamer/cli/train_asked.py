"""What a user asked of `gossamer train`: settings from flags, a file and a preset, and a folder, new or old."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.algorithms import parse_algorithm
from gossamer.algorithms.options import read_options
from gossamer.algorithms.plugins import load_plugins
from gossamer.errors import UserError
from gossamer.network import Network
from gossamer.run.folder import RunFolder, safe_name, unused_folder
from gossamer.run.settings import Settings, make_settings, read_settings
from gossamer.runtime.launch.launch_settings import Processes, read_processes
from gossamer.train.loggers import check_log
from gossamer.train.presets import preset_values

_PROCESSES = tuple(field.name for field in dataclasses.fields(Processes))


@dataclass(frozen=True)
class Asked:
    """The command line of one run."""

    config: Path | None
    preset: str | None
    out: Path | None
    resume: Path | None
    given: dict[str, Any]  # the flags that were used

    def settings(self) -> Settings:
        """Return the settings of a new run: flags win over the file, which wins over the preset."""
        values = {**(read_settings(self.config) if self.config else {}), **self.given}
        load_plugins(values.get("plugin"))
        name, options = parse_algorithm(str(values.get("algorithm", "pc-asgd")))
        values = {**values, **options, "algorithm": name}
        if self.preset is not None:
            values = {**preset_values(self.preset, name), **values}
        settings = make_settings(values)
        check_log(settings.log)
        return settings

    def make_folder(self, settings: Settings, network: Network) -> RunFolder:
        """Make the folder of a new run."""
        name = safe_name(f"{settings.algorithm}-{settings.network}-delay{settings.delay}-seed{settings.seed}")
        return RunFolder.create(self.out or unused_folder(Path("runs"), name), settings, network)

    def open_folder(self) -> tuple[RunFolder, Settings]:
        """Open the folder of a run to go on with; it has settings of its own."""
        if self.config is not None or self.preset is not None or self.out is not None or self.given:
            raise _too_much(next(iter(self.given), "CONFIG, --preset or --out"))
        assert self.resume is not None
        folder, settings = RunFolder.open(self.resume)
        check_log(settings.log)
        return folder, settings

    def take_processes(self) -> Processes | None:
        """Take the flags about processes out of the given ones; None when the simulator is to run."""
        flags = {name: self.given.pop(name) for name in _PROCESSES if name in self.given}
        if self.resume is not None:
            if flags:
                raise _too_much(next(iter(flags)))
            return read_processes(self.resume)
        how = Processes(**read_options(Processes, "processes", flags))
        if how.engine == "processes":
            return how
        others = [name for name in flags if name != "engine"]
        if others:
            raise UserError(f"--{others[0].replace('_', '-')} is for agents that are processes; add --engine processes")
        return None


def _too_much(extra: str) -> UserError:
    return UserError(f"--resume takes the run's own settings, got {extra} besides; leave that out, or train anew")
