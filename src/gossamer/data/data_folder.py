"""Data sets on disk: the data folder, checksums, archives and downloads."""

import contextlib
import hashlib
import importlib.util
import os
import sys
import tarfile
import tempfile
import zlib
from pathlib import Path

from gossamer.errors import UserError


def data_folder(data_dir: str | None = None) -> Path:
    """Return the folder of the data sets: the given one, else $GOSSAMER_DATA, else the user's cache."""
    given = data_dir or os.environ.get("GOSSAMER_DATA")
    folder = Path(given).expanduser() if given else _cache()
    if folder.exists() and not folder.is_dir():
        raise UserError(f"data folder '{folder}' is a file; name a folder with --data-dir or GOSSAMER_DATA")
    return folder


def _cache() -> Path:
    try:
        import pooch  # type: ignore[import-untyped]
    except ImportError:
        return Path.home() / ".cache" / "gossamer"
    return Path(pooch.os_cache("gossamer"))


def read_bytes(path: Path) -> bytes:
    """Read a whole file; raise UserError if that fails."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read '{path}' ({error.strerror}); put the official file there") from None


def read_checked(path: Path, md5: str) -> bytes:
    """Read an official file and refuse it if its checksum is wrong."""
    content = read_bytes(path)
    _compare(path, hashlib.md5(content, usedforsecurity=False).hexdigest(), md5)
    return content


def unpack(archive: Path, md5: str, inside: str) -> Path:
    """Check an official archive, unpack it into its folder, and return the folder inside it."""
    target = archive.parent / inside
    try:
        with archive.open("rb") as content:
            digest = hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        _compare(archive, digest, md5)
        with (
            tempfile.TemporaryDirectory(dir=archive.parent, prefix=".unpacking-") as place,
            tarfile.open(archive) as tar,
        ):
            tar.extractall(place, filter="data")
            (Path(place) / inside).rename(target)
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        if not target.is_dir():  # otherwise another process was faster
            raise UserError(
                f"cannot unpack '{archive}' ({type(error).__name__}); unpack it by hand, or name a folder that can be "
                "written to with --data-dir or GOSSAMER_DATA"
            ) from None
    return target


def download(what: str, url: str, md5: str, folder: Path, remedy: str) -> Path:
    """Download an official file into a folder; the error names the files to put there by hand."""
    made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    try:
        import pooch

        # On a terminal pooch shows a progress bar, for which it needs tqdm.
        watched, name = sys.stderr.isatty(), url.rpartition("/")[2]
        pooch.get_logger().setLevel("INFO" if watched else "WARNING")
        bar = watched and importlib.util.find_spec("tqdm") is not None
        return Path(pooch.retrieve(url, known_hash=f"md5:{md5}", fname=name, path=folder, progressbar=bar))
    except ImportError:
        reason = "pooch is not installed"
    except OSError as error:
        reason = type(error).__name__
    except ValueError:
        reason = "what came has a wrong checksum"
    for parent in made:  # the name of the folder may be misspelt: remove the new folders
        with contextlib.suppress(OSError):
            parent.rmdir()
    raise UserError(
        f"{what} is not in '{folder}' and cannot be downloaded ({reason}); put {remedy} there, or name another folder "
        "with --data-dir or GOSSAMER_DATA"
    )


def _compare(path: Path, found: str, md5: str) -> None:
    if found != md5:
        raise UserError(f"'{path}' is not the official file (its md5 is {found}, not {md5}); remove it, or replace it")
