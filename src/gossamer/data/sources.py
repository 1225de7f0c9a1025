"""Data sets in memory."""

from dataclasses import dataclass

import torch

from gossamer.seeding import generator
from gossamer.shapes import Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and class labels."""

    x: Float[Tensor, "m ..."]
    y: Int[Tensor, " m"]

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: str) -> "Examples":
        """Return the same examples on a device."""
        return Examples(self.x.to(device), self.y.to(device))


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
