"""Examples in memory, and a data set: training and test examples, classes and preparation."""

from dataclasses import dataclass

from gossamer.data.batches import Normalize
from gossamer.shapes import Int, Tensor


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and their targets.

    Attributes:
        x: [m, …]: floating-point features, images as bytes [m, C, H, W], or text as int64 [m, T].
        y: one class label per example, or for text the next byte at every position.
    """

    x: Tensor
    y: Int[Tensor, "m ..."]

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: str) -> "Examples":
        """Return the same examples on a device."""
        return Examples(self.x.to(device), self.y.to(device))


@dataclass(frozen=True, eq=False)
class DataSet:
    """Training and test examples, the number of classes, and the preparation of inputs."""

    train: Examples
    test: Examples
    num_classes: int
    prepare: Normalize | None = None  # None: inputs do not change
    augments: bool = False  # whether training crops and flips its images by default

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input: (features,), (C, H, W), or (T,) for text."""
        return tuple(self.train.x.shape[1:])
