"""All data sets by name, with the two that need no module of their own: digits, and text.

scikit-learn's digits come with it, so nothing is downloaded. A text is the bytes of any file: predict the next byte.
"""

import gzip
import importlib.util
from pathlib import Path

import numpy as np
import torch

from gossamer.data.cifar import load_cifar
from gossamer.data.examples import DataSet, Examples
from gossamer.data.idx import load_idx
from gossamer.data.synthetic import load_synthetic
from gossamer.errors import UserError, read_whole, unknown_name
from gossamer.seeding import generator
from gossamer.shapes import Int, Tensor

SOURCES = {
    "digits": "scikit-learn's 1797 handwritten digits, 8 x 8, 10 classes, no download",
    "cifar10": "60,000 colour photographs, 32 x 32, 10 classes, cropped and flipped in training",
    "cifar100": "60,000 colour photographs, 32 x 32, 100 classes, cropped and flipped in training",
    "mnist": "70,000 handwritten digits, 28 x 28, 10 classes",
    "fashion-mnist": "70,000 pictures of clothes, 28 x 28, 10 classes",
    "synthetic": "made-up Gaussian clouds: synthetic:classes=10,features=40,examples=6000,noise=0.05",
    "text": "the bytes of a file, each predicted from those before it: text:book.txt,context=64",
}
CONTEXT = 64  # bytes of a text before the one to predict
TEXT_TEST_SHARE = 10  # one byte in ten


def load_data(name: str, data_dir: str | None = None) -> DataSet:
    """Return the data set of this name, such as 'digits', 'synthetic:classes=3' or 'text:book.txt'."""
    kind, colon, _ = name.partition(":")
    if kind not in SOURCES:
        raise unknown_name("task", name, SOURCES)
    if kind == "text":
        return load_text(name)
    if kind == "synthetic":
        return load_synthetic(name)
    if colon:
        raise UserError(f"task '{name}' takes no parameter; write {kind}")
    if kind == "digits":
        return DataSet(*load_digits(), num_classes=10)
    return load_cifar(kind, data_dir) if kind.startswith("cifar") else load_idx(kind, data_dir)


def load_digits(test_share: float = 0.2) -> tuple[Examples, Examples]:
    """Return scikit-learn's 1797 digits, 8 x 8 pixels in [0, 1], as training and test examples.

    The split is the same for every run, so that seeds differ in training only.
    """
    raw = _raw_digits()
    x = torch.from_numpy(raw[:, :-1] / 16.0).to(torch.float32)
    y = torch.from_numpy(raw[:, -1]).to(torch.int64)
    order = torch.randperm(len(y), generator=generator(0, "digits-split"))
    num_test = round(test_share * len(y))
    test, train = order[:num_test], order[num_test:]
    return Examples(x[train], y[train]), Examples(x[test], y[test])


def _raw_digits() -> np.ndarray:
    """Return 64 pixels from 0 to 16 and the digit, a row each.

    The file is read where scikit-learn keeps it: to import that package takes a second, and every agent reads it.
    """
    package = importlib.util.find_spec("sklearn")
    assert package is not None and package.submodule_search_locations  # it is one of gossamer's requirements
    file = Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    if file.exists():
        with gzip.open(file, "rt") as lines:
            return np.loadtxt(lines, delimiter=",")
    from sklearn.datasets import load_digits as load  # a release that keeps it elsewhere

    found = load()
    return np.column_stack([found.data, found.target])


def load_text(name: str) -> DataSet:
    """Return the windows of 'text:FILE' or 'text:FILE,context=128'; the last tenth of the file is the test part."""
    file, comma, number = name.partition(":")[2].partition(",context=")
    if not file:
        raise UserError(f"task '{name}' names no file; write text:FILE, as text:book.txt")
    context = read_whole(f"context of task '{name}'", number) if comma else CONTEXT
    if context < 1:
        raise UserError(f"task '{name}' has a context of {context} bytes; use 1 or more, as context={CONTEXT}")
    path = Path(file).expanduser()
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read text '{file}' ({error.strerror}); write text:FILE, as text:book.txt") from None
    least = TEXT_TEST_SHARE * (context + 1)
    if len(content) < least:
        raise UserError(
            f"text '{file}' has {len(content)} bytes, too few for a context of {context}; use {least} bytes or more"
        )
    codes = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(torch.int64)
    end = len(codes) - len(codes) // TEXT_TEST_SHARE
    return DataSet(windows(codes[:end], context), windows(codes[end:], context), num_classes=256)


def windows(codes: Int[Tensor, " length"], context: int) -> Examples:
    """Cut bytes into windows that do not overlap, each with the bytes that follow its own; a short rest is dropped."""
    count = (len(codes) - 1) // context
    x, y = (codes[first : first + count * context].view(count, context) for first in (0, 1))
    return Examples(x, y)
