"""MNIST and Fashion-MNIST from IDX files: a header of big-endian numbers, then bytes."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch

from gossamer.data.batches import Normalize
from gossamer.data.data_folder import data_folder, download, read_bytes
from gossamer.data.examples import DataSet, Examples
from gossamer.errors import UserError
from gossamer.shapes import Tensor

NUM_CLASSES = 10
FILES = {  # part -> images, labels
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
URLS = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion-mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
}
MD5 = {  # of the official .gz files, checked when they are downloaded
    "mnist": {
        "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    "fashion-mnist": {
        "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
    },
}
NORMALIZE = {  # of the training images
    "mnist": Normalize(mean=(0.1307,), std=(0.3081,)),
    "fashion-mnist": Normalize(mean=(0.2860,), std=(0.3530,)),
}


def load_idx(name: str, data_dir: str | None = None) -> DataSet:
    """Return 'mnist' or 'fashion-mnist', images as bytes [m, 1, 28, 28], from the folder of that name."""
    folder = data_folder(data_dir) / name
    train, test = (_load_part(name, folder, *files) for files in FILES.values())
    if train.x.shape[1:] != test.x.shape[1:]:
        raise UserError(
            f"'{folder}' holds training images of {_size(train.x)} pixels and test images of {_size(test.x)}; "
            "put files of one set there"
        )
    return DataSet(train, test, NUM_CLASSES, NORMALIZE[name])


def _load_part(name: str, folder: Path, images_file: str, labels_file: str) -> Examples:
    images = read_idx(_find(name, folder, images_file), 3)
    labels = read_idx(_find(name, folder, labels_file), 1)
    if len(images) != len(labels) or images.numel() == 0:
        raise UserError(
            f"'{folder}' holds {len(images)} images in {images_file} and {len(labels)} labels in {labels_file}; "
            "put files of one set there"
        )
    if int(labels.max()) >= NUM_CLASSES:
        raise UserError(f"'{folder / labels_file}' holds the label {int(labels.max())}; use labels 0 to 9")
    return Examples(images[:, None], labels.to(torch.int64))


def _find(name: str, folder: Path, file: str) -> Path:
    """Return the file, plain or compressed; download it if it is missing."""
    for path in (folder / file, folder / f"{file}.gz"):
        if path.is_file():
            return path
    return download(name, f"{URLS[name]}{file}.gz", MD5[name][file], folder, f"{file} or {file}.gz")


def read_idx(path: Path, num_dims: int) -> Tensor:
    """Read an IDX file of bytes with so many dimensions, compressed if its name ends in .gz."""
    content = read_bytes(path)
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            raise UserError(f"'{path}' is damaged: it cannot be decompressed; put the official file there") from None
    # Two zeros, the type (8: unsigned bytes) and the number of dimensions; then each dimension.
    magic, start = bytes([0, 0, 8, num_dims]), 4 + 4 * num_dims
    if len(content) < start or content[:4] != magic:
        raise UserError(
            f"'{path}' is no IDX file of bytes with {num_dims} dimensions (it starts with '{content[:4].hex()}', not "
            f"'{magic.hex()}'); put the official file there"
        )
    sizes = np.frombuffer(content, ">u4", num_dims, offset=4).tolist()
    if len(content) - start != math.prod(sizes):
        raise UserError(
            f"'{path}' is damaged: {len(content) - start} bytes follow its header, which announces "
            f"{math.prod(sizes)}; put the official file there"
        )
    # A copy, because torch warns about read-only memory.
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).reshape(sizes).copy())


def _size(images: Tensor) -> str:
    return f"{images.shape[-2]} x {images.shape[-1]}"
