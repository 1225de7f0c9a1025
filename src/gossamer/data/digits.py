"""scikit-learn's handwritten digits, which come with it: no download."""

import torch

from gossamer.data.examples import Examples
from gossamer.seeding import generator


def load_digits(test_share: float = 0.2) -> tuple[Examples, Examples]:
    """Return scikit-learn's 1797 digits, 8 x 8 pixels in [0, 1], as training and test examples.

    The split is the same for every run, so that seeds differ in training only.
    """
    from sklearn import datasets

    raw = datasets.load_digits()
    x = torch.from_numpy(raw.data / 16.0).to(torch.float32)
    y = torch.from_numpy(raw.target).to(torch.int64)
    order = torch.randperm(len(y), generator=generator(0, "digits-split"))
    num_test = round(test_share * len(y))
    test, train = order[:num_test], order[num_test:]
    return Examples(x[train], y[train]), Examples(x[test], y[test])
