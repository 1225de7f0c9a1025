"""All data sets by name, and the three without download: digits, text and synthetic.

Digits are part of scikit-learn. A text is the bytes of any file; the task is to predict the next byte. Synthetic data
are two Gaussian clouds per class, with some random labels.
"""

import gzip
import importlib.util
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch

from gossamer.data.cifar import load_cifar
from gossamer.data.examples import DataSet, Examples
from gossamer.data.idx import load_idx
from gossamer.errors import UserError, read_number, read_whole, unknown_name
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
CONTEXT = 64  # bytes before the byte to predict
TEXT_TEST_SHARE = 10  # one byte in ten is a test byte
CLOUDS = 2  # per class, so a linear model cannot be perfect
SEPARATION = 5.5  # typical distance of two clouds in standard deviations, for any number of features
SYNTHETIC_TEST_SHARE = 6  # one example in six is a test example
LARGEST_SYNTHETIC = 10**9  # numbers in all inputs


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

    The split is the same for every run: seeds change only the training.
    """
    raw = _raw_digits()
    x = torch.from_numpy(raw[:, :-1] / 16.0).to(torch.float32)
    y = torch.from_numpy(raw[:, -1]).to(torch.int64)
    order = torch.randperm(len(y), generator=generator(0, "digits-split"))
    num_test = round(test_share * len(y))
    test, train = order[:num_test], order[num_test:]
    return Examples(x[train], y[train]), Examples(x[test], y[test])


def _raw_digits() -> np.ndarray:
    """Return a row per digit: 64 pixels from 0 to 16, and the digit.

    The file of scikit-learn is read directly, because importing the package takes a second in every agent.
    """
    package = importlib.util.find_spec("sklearn")
    assert package is not None and package.submodule_search_locations  # gossamer requires it
    file = Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    if file.exists():
        with gzip.open(file, "rt") as lines:
            return np.loadtxt(lines, delimiter=",")
    from sklearn.datasets import load_digits as load  # a release with the file elsewhere

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
    """Cut bytes into windows without overlap, each with the next byte at every position; drop a short rest."""
    count = (len(codes) - 1) // context
    x, y = (codes[first : first + count * context].view(count, context) for first in (0, 1))
    return Examples(x, y)


@dataclass(frozen=True)
class Synthetic:
    """The parameters, as in 'synthetic:classes=10,features=40,examples=6000,noise=0.05,seed=0'."""

    classes: int = 10
    features: int = 40
    examples: int = 6000  # training and test together
    noise: float = 0.05  # share of random labels
    seed: int = 0  # of the data, independent of the run's seed

    def __post_init__(self) -> None:
        for name, least in (("classes", 2), ("features", 1), ("examples", SYNTHETIC_TEST_SHARE), ("seed", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{name} of a synthetic task must be {least} or more, got {getattr(self, name)}")
        if not 0 <= self.noise <= 1:
            raise UserError(f"noise of a synthetic task must lie in [0, 1], got {self.noise}")
        if self.examples * self.features > LARGEST_SYNTHETIC or self.classes > self.examples:
            raise UserError(
                f"a synthetic task of {self.classes} classes, {self.examples} examples and {self.features} features is "
                f"too large: use at most a class an example and {LARGEST_SYNTHETIC} numbers in all"
            )


def load_synthetic(name: str) -> DataSet:
    """Make the examples of 'synthetic' or 'synthetic:classes=3,features=5'."""
    made = _read_synthetic(name)
    draws = generator(made.seed, "synthetic", made.classes, made.features, made.examples)
    spread = SEPARATION / (2 * made.features) ** 0.5
    centres = spread * torch.randn(made.classes, CLOUDS, made.features, generator=draws)
    labels = torch.arange(made.examples) % made.classes
    clouds = torch.randint(CLOUDS, (made.examples,), generator=draws)
    x = centres[labels, clouds] + torch.randn(made.examples, made.features, generator=draws)
    wrong = torch.rand(made.examples, generator=draws) < made.noise
    y = torch.where(wrong, torch.randint(made.classes, (made.examples,), generator=draws), labels)
    num_test = made.examples // SYNTHETIC_TEST_SHARE
    train, test = Examples(x[num_test:], y[num_test:]), Examples(x[:num_test], y[:num_test])
    return DataSet(train, test, made.classes)


def _read_synthetic(name: str) -> Synthetic:
    """Parse the parameters after the colon."""
    types = {field.name: field.type for field in fields(Synthetic)}
    values: dict[str, int | float] = {}
    for part in filter(None, name.partition(":")[2].split(",")):
        key, _, text = part.partition("=")
        if key not in types:
            raise unknown_name(f"parameter of task '{name}':", key, types)
        values[key] = (read_whole if types[key] is int else read_number)(f"{key} of task '{name}'", text)
    return Synthetic(**values)  # type: ignore[arg-type]
