"""Which run to follow: the folder that was named, or the newest one."""

from pathlib import Path

from gossamer.errors import UserError
from gossamer.report.read_runs import RunRecord, read_run
from gossamer.report.watch.launched import NOTE, read_launch
from gossamer.run.status import STATUS_FILE

RUNS = Path("runs")  # where train and launch make their folders
KINDS = ("config.toml", NOTE)  # one of which every run's folder has
SIGNS = (STATUS_FILE, "metrics.jsonl", *KINDS)  # files that tell when a run was last heard of


def newest_run(place: Path = RUNS) -> Path:
    """Return the run folder below a place in which something was written last."""
    folders = {file.parent for kind in KINDS for depth in ("*", "*/runs/*") for file in place.glob(f"{depth}/{kind}")}
    if not folders:
        raise UserError(f"there is no run in '{place}'; start one with gossamer train, or name a folder")
    return max(sorted(folders), key=_last_sign)


def _last_sign(folder: Path) -> float:
    return max((path.stat().st_mtime for name in SIGNS if (path := folder / name).exists()), default=0.0)


def read_any(path: Path) -> RunRecord:
    """Read a run of train or launch, which may have just begun; one line says what is wrong with anything else."""
    if not path.exists():
        raise UserError(f"there is no '{path}'; give a folder that train or launch wrote")
    if not path.is_dir():
        raise UserError(f"'{path}' is a file; give the run folder that it lies in")
    if (path / "config.toml").is_file():
        return read_run(path, may_be_empty=True)
    if (path / NOTE).is_file():
        return read_launch(path)
    what = "is not a run folder: it has neither config.toml nor " + NOTE if any(path.iterdir()) else "is empty"
    raise UserError(f"'{path}' {what}; give one that train or launch wrote")
