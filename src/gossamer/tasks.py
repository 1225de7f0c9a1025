"""Tasks. A task is a model, training and test examples, and a loss: by name, or your own."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from gossamer.data import SOURCES, Examples, load_data
from gossamer.errors import UserError, unknown_name
from gossamer.nn import FlatModule, make_model
from gossamer.seeding import generator
from gossamer.shapes import Bool, Float, Int, Tensor

TASKS = SOURCES  # a task by name is a data set with a model


def cross_entropy(outputs: Float[Tensor, "*m classes"], targets: Int[Tensor, "*m"]) -> Float[Tensor, ""]:
    """Return the mean cross entropy over all targets: one per example, or one per position of a text."""
    return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def correct(outputs: Float[Tensor, "... classes"], targets: Int[Tensor, "..."]) -> Bool[Tensor, "..."]:
    """Return for each target whether the largest output is correct. There may be any leading dimensions.

    A non-finite output is never correct.
    """
    return (outputs.argmax(dim=-1) == targets) & torch.isfinite(outputs).all(dim=-1)


@dataclass(frozen=True, eq=False)
class Task:
    """A model, its data and its loss.

    Attributes:
        name: shown in summaries.
        model: returns a new module. Its outputs have the classes in the last dimension.
        train: the training examples, which are split among the agents.
        test: the examples for evaluations.
        model_name: shown in summaries.
        loss: a function of (outputs, targets). It returns the mean over the batch, whatever the batch size.
        prepare: a function of (raw inputs, dtype) that returns the inputs of the model; None uses raw inputs.
        augments: whether training crops and flips images unless `augment` is set.
    """

    name: str
    model: Callable[[], nn.Module]
    train: Examples
    test: Examples
    model_name: str = "custom"
    loss: Callable[[Tensor, Tensor], Tensor] = field(default=cross_entropy)
    prepare: Callable[[Tensor, torch.dtype], Tensor] | None = None
    augments: bool = False

    def inputs(self, raw: Tensor, dtype: torch.dtype) -> Tensor:
        """Convert raw inputs for the model: normalise images, convert features to `dtype`, leave text unchanged."""
        if self.prepare is not None:
            return self.prepare(raw, dtype)
        return raw.to(dtype) if raw.is_floating_point() else raw

    def fresh_module(self, seed: int, agent: int = 0) -> FlatModule:
        """Make a module whose random initial parameters depend on the seed only, not on torch's global generator."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator(seed, "init", agent).initial_seed())
            return FlatModule(self.model())

    def held_out(self, share: float, seed: int) -> "Task":
        """Return the task on training data only: a random share of it replaces the test data."""
        count = round(share * len(self.train))
        if not 0 < count < len(self.train):
            raise UserError(f"validation {share} holds out {count} of {len(self.train)} examples; use for example 0.2")
        order = torch.randperm(len(self.train), generator=generator(seed, "hold-out"))
        test, train = (Examples(self.train.x[part], self.train.y[part]) for part in (order[:count], order[count:]))
        return dataclasses.replace(self, train=train, test=test)

    def test_sample(self, count: int, seed: int) -> Int[Tensor, " m"]:
        """Return the indices of this many random test examples, or of all if there are fewer."""
        order = torch.randperm(len(self.test), generator=generator(seed, "evaluation"))
        return order[:count].sort().values

    def initial(self, how: str, num_agents: int, seed: int) -> Float[Tensor, "n d"]:
        """Return every agent's initial parameters: 'common', 'independent' or 'zero'."""
        starts = {
            "common": lambda: self.fresh_module(seed).initial().repeat(num_agents, 1),
            "independent": lambda: torch.stack([self.fresh_module(seed, i).initial() for i in range(num_agents)]),
            "zero": lambda: torch.zeros_like(self.fresh_module(seed).initial()).repeat(num_agents, 1),
        }
        if how not in starts:
            raise unknown_name("init", how, starts)
        return starts[how]()


def make_task(name: str, model: str = "mlp", data_dir: str | None = None) -> Task:
    """Make a task from the names of its data set and its model. Downloads go to the data folder."""
    data = load_data(name, data_dir)
    if data.train.y.dim() > 1 and not model.startswith("transformer"):
        raise UserError(f"model '{model}' cannot read the text of '{name}'; use --model transformer")

    def fresh() -> nn.Module:
        return make_model(model, data.shape, data.num_classes)

    with torch.random.fork_rng(devices=[]):
        fresh()  # refuses a wrong name now, not at the first step
    return Task(name, fresh, data.train, data.test, model, prepare=data.prepare, augments=data.augments)
