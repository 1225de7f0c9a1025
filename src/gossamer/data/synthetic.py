"""Made-up classification: two Gaussian clouds a class, and some labels drawn anew."""

from dataclasses import dataclass, fields

import torch

from gossamer.data.examples import DataSet, Examples
from gossamer.errors import UserError, read_number, read_whole, unknown_name
from gossamer.seeding import generator

CLOUDS = 2  # a class, so that a linear model cannot be perfect
SEPARATION = 5.5  # typical distance of two clouds in standard deviations, whatever the number of features
TEST_SHARE = 6  # one example in six
LARGEST = 10**9  # numbers in all inputs together


@dataclass(frozen=True)
class Synthetic:
    """The parameters, as in 'synthetic:classes=10,features=40,examples=6000,noise=0.05,seed=0'."""

    classes: int = 10
    features: int = 40
    examples: int = 6000  # training and test together
    noise: float = 0.05  # share of labels that are drawn anew
    seed: int = 0  # of the data; a run's own seed does not change them

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, least in (("classes", 2), ("features", 1), ("examples", TEST_SHARE), ("seed", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{name} of a synthetic task must be {least} or more, got {getattr(self, name)}")
        if not 0 <= self.noise <= 1:
            raise UserError(f"noise of a synthetic task must lie in [0, 1], got {self.noise}")
        if self.examples * self.features > LARGEST or self.classes > self.examples:
            raise UserError(
                f"a synthetic task of {self.classes} classes, {self.examples} examples and {self.features} features is "
                f"too large: use at most a class an example and {LARGEST} numbers in all"
            )


def load_synthetic(name: str) -> DataSet:
    """Make the examples of 'synthetic' or 'synthetic:classes=3,features=5'."""
    made = _read(name)
    draws = generator(made.seed, "synthetic", made.classes, made.features, made.examples)
    spread = SEPARATION / (2 * made.features) ** 0.5
    centres = spread * torch.randn(made.classes, CLOUDS, made.features, generator=draws)
    labels = torch.arange(made.examples) % made.classes
    clouds = torch.randint(CLOUDS, (made.examples,), generator=draws)
    x = centres[labels, clouds] + torch.randn(made.examples, made.features, generator=draws)
    wrong = torch.rand(made.examples, generator=draws) < made.noise
    y = torch.where(wrong, torch.randint(made.classes, (made.examples,), generator=draws), labels)
    num_test = made.examples // TEST_SHARE
    train, test = Examples(x[num_test:], y[num_test:]), Examples(x[:num_test], y[:num_test])
    return DataSet(train, test, made.classes)


def _read(name: str) -> Synthetic:
    """Parse the parameters behind the colon."""
    types = {field.name: field.type for field in fields(Synthetic)}
    values: dict[str, int | float] = {}
    for part in filter(None, name.partition(":")[2].split(",")):
        key, _, text = part.partition("=")
        if key not in types:
            raise unknown_name(f"parameter of task '{name}':", key, types)
        values[key] = (read_whole if types[key] is int else read_number)(f"{key} of task '{name}'", text)
    return Synthetic(**values)  # type: ignore[arg-type]
