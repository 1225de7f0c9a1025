"""CIFAR-10 and CIFAR-100 in both official layouts, python and binary, as folders or as archives.

The python layout consists of pickles, which can run code when they are read. So every file must have the official
checksum before it is opened, and the reader accepts only arrays and plain values.
"""

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gossamer.data.batches import Normalize
from gossamer.data.data_folder import data_folder, download, read_checked, unpack
from gossamer.data.examples import DataSet, Examples

URL = "https://www.cs.toronto.edu/~kriz/"
PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class CifarFiles:
    """An archive, the folder inside it, and the md5 of every file that is read."""

    archive: str
    archive_md5: str
    folder: str
    train: dict[str, str]  # file -> md5
    test: dict[str, str]


@dataclass(frozen=True)
class Cifar:
    """The differences of the two sets; a binary record has `label_bytes` labels (the last counts) and pixels."""

    num_classes: int
    label_key: bytes
    label_bytes: int
    normalize: Normalize  # of the training images
    python: CifarFiles
    binary: CifarFiles


_BATCHES = {
    "data_batch_1": ("c99cafc152244af753f735de768cd75f", "5dd7e06a14cb22eb9f671a540d1b7c25"),
    "data_batch_2": ("d4bba439e000b95fd0a9bffe97cbabec", "5ea93a67294ea407fff1d09f752e9692"),
    "data_batch_3": ("54ebc095f3ab1f0389bbae665268c751", "942cd6a4bcdd0dd3c604fbe906cb4421"),
    "data_batch_4": ("634d18415352ddfa80567beed471001a", "ae636b3ba5c66a11e91e8cb52e771fcb"),
    "data_batch_5": ("482c414d41f54cd18b22e5b47cb7c3cb", "53f37980c15c3d472c316c40844f3f0d"),
}

SETS = {
    "cifar10": Cifar(
        num_classes=10,
        label_key=b"labels",
        label_bytes=1,
        normalize=Normalize(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)),
        python=CifarFiles(
            "cifar-10-python.tar.gz",
            "c58f30108f718f92721af3b95e74349a",
            "cifar-10-batches-py",
            train={file: md5 for file, (md5, _) in _BATCHES.items()},
            test={"test_batch": "40351d587109b95175f43aff81a1287e"},
        ),
        binary=CifarFiles(
            "cifar-10-binary.tar.gz",
            "c32a1d4ab5d03f1284b67883e8d87530",
            "cifar-10-batches-bin",
            train={f"{file}.bin": md5 for file, (_, md5) in _BATCHES.items()},
            test={"test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d"},
        ),
    ),
    "cifar100": Cifar(
        num_classes=100,
        label_key=b"fine_labels",
        label_bytes=2,
        normalize=Normalize(mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762)),
        python=CifarFiles(
            "cifar-100-python.tar.gz",
            "eb9058c3a382ffc7106e4002c42a8d85",
            "cifar-100-python",
            train={"train": "16019d7e3df5f24257cddd939b257f8d"},
            test={"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
        ),
        binary=CifarFiles(
            "cifar-100-binary.tar.gz",
            "03b5dce01913d631647c71ecec9e9cb8",
            "cifar-100-binary",
            train={"train.bin": "6172c7755cfe09b2fe270c85cebc1b15"},
            test={"test.bin": "4499cfba6c016c1be1438163640a0898"},
        ),
    ),
}


def load_cifar(name: str, data_dir: str | None = None) -> DataSet:
    """Return 'cifar10' or 'cifar100', images as bytes [m, 3, 32, 32], from the data folder, or downloaded."""
    kind = SETS[name]
    folder, layout = _find(name, kind, data_folder(data_dir))
    train, test = (_read_files(kind, layout, folder, files) for files in (layout.train, layout.test))
    return DataSet(train, test, kind.num_classes, kind.normalize, augments=True)


def _find(name: str, kind: Cifar, place: Path) -> tuple[Path, CifarFiles]:
    """Return a folder with the set's files: an existing, an unpacked or a downloaded one."""
    layouts = (kind.python, kind.binary)
    for layout in layouts:
        if (place / layout.folder).is_dir():
            return place / layout.folder, layout
    for layout in layouts:
        if (place / layout.archive).is_file():
            return unpack(place / layout.archive, layout.archive_md5, layout.folder), layout
    layout = kind.python
    remedy = " or ".join(f"{one.folder}/ or {one.archive}" for one in layouts)
    archive = download(name, URL + layout.archive, layout.archive_md5, place, remedy)
    return unpack(archive, layout.archive_md5, layout.folder), layout


def _read_files(kind: Cifar, layout: CifarFiles, folder: Path, files: dict[str, str]) -> Examples:
    read = _read_pickle if layout is kind.python else _read_records
    images, labels = zip(*(read(kind, read_checked(folder / file, md5)) for file, md5 in files.items()), strict=True)
    x = torch.from_numpy(np.concatenate(images)).view(-1, 3, 32, 32)
    return Examples(x, torch.from_numpy(np.concatenate(labels)).to(torch.int64))


def _read_records(kind: Cifar, content: bytes) -> tuple[Any, Any]:
    records = np.frombuffer(content, np.uint8).reshape(-1, kind.label_bytes + PIXELS)
    return records[:, kind.label_bytes :], records[:, kind.label_bytes - 1]


def _read_pickle(kind: Cifar, content: bytes) -> tuple[Any, Any]:
    batch = ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    return batch[b"data"], np.asarray(batch[kind.label_key])


class ArrayUnpickler(pickle.Unpickler):
    """Reads pickles of plain values and numpy arrays; refuses anything else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the functions that rebuild an array; numpy has renamed the module since these files were written."""
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return super().find_class("numpy._core.multiarray", name)
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return _dtype
        raise pickle.UnpicklingError(f"the pickle names {module}.{name}, which is no array")


def _dtype(code: bytes | str, align: int = 0, copy: int = 0) -> np.dtype[Any]:
    """Make a dtype from the pickles of Python 2: bytes for text, numbers for booleans."""
    return np.dtype(code.decode() if isinstance(code, bytes) else code, align=bool(align), copy=bool(copy))
