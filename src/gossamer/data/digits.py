"""scikit-learn's handwritten digits, which come with it: no download."""

import gzip
import importlib.util
from pathlib import Path

import numpy as np
import torch

from gossamer.data.examples import Examples
from gossamer.seeding import generator


def load_digits(test_share: float = 0.2) -> tuple[Examples, Examples]:
    """Return scikit-learn's 1797 digits, 8 x 8 pixels in [0, 1], as training and test examples.

    The split is the same for every run, so that seeds differ in training only.
    """
    raw = _raw()
    x = torch.from_numpy(raw[:, :-1] / 16.0).to(torch.float32)
    y = torch.from_numpy(raw[:, -1]).to(torch.int64)
    order = torch.randperm(len(y), generator=generator(0, "digits-split"))
    num_test = round(test_share * len(y))
    test, train = order[:num_test], order[num_test:]
    return Examples(x[train], y[train]), Examples(x[test], y[test])


def _raw() -> np.ndarray:
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
