"""Everything a run depends on, in one .npz file, written so that no reader ever sees half of it."""

import contextlib
import os
import zipfile
from pathlib import Path

import numpy as np
import torch

from gossamer.errors import UserError
from gossamer.shapes import Tensor

FORMAT = 1


def save_checkpoint(path: Path, state: dict[str, Tensor]) -> None:
    """Write the tensors to a temporary file beside `path`, then rename it into place."""
    arrays = {name: value.detach().cpu().numpy() for name, value in state.items()}
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        np.savez(file, format=np.array(FORMAT), **arrays)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def load_checkpoint(path: Path) -> dict[str, Tensor]:
    """Read what `save_checkpoint` wrote, or say that the file is missing or damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise UserError(f"there is no checkpoint '{path}'; give a run folder that was saved, or train anew") from None
    except (OSError, ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise UserError(
            f"checkpoint '{path}' is damaged or truncated ({error}); train anew into another folder"
        ) from None
    version = arrays.pop("format", np.array(0)).tolist()
    if version != FORMAT:
        raise UserError(f"checkpoint '{path}' has format {version}, this version reads {FORMAT}; train anew")
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def part_of(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the entries under a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def write_text(path: Path, text: str) -> None:
    """Write a small file in one piece: a temporary one, renamed into place."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
