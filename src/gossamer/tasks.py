"""A task is a model, training and test examples, and a loss; by name, or your own."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from gossamer.data import Examples, load_digits
from gossamer.errors import unknown_name
from gossamer.nn import FlatModule, make_model
from gossamer.seeding import generator
from gossamer.shapes import Float, Tensor

TASKS = {"digits": "scikit-learn's 1797 handwritten digits, 10 classes, no download"}


@dataclass(frozen=True, eq=False)
class Task:
    """What the agents learn together.

    `model` makes a fresh module; the loss is a mean over the batch, so that the learning rate does not depend on it.
    """

    name: str
    model: Callable[[], nn.Module]
    train: Examples
    test: Examples
    model_name: str = "custom"
    loss: Callable[[Tensor, Tensor], Tensor] = field(default=nn.functional.cross_entropy)

    def fresh_module(self, seed: int, agent: int = 0) -> FlatModule:
        """Make a module whose random start depends on the seed alone, whatever torch's global generator holds."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator(seed, "init", agent).initial_seed())
            return FlatModule(self.model())

    def initial(self, how: str, num_agents: int, seed: int) -> Float[Tensor, "n d"]:
        """Return every agent's first parameters: one 'common' start, 'independent' ones, or 'zero'."""
        starts = {
            "common": lambda: self.fresh_module(seed).initial().repeat(num_agents, 1),
            "independent": lambda: torch.stack([self.fresh_module(seed, i).initial() for i in range(num_agents)]),
            "zero": lambda: torch.zeros_like(self.fresh_module(seed).initial()).repeat(num_agents, 1),
        }
        if how not in starts:
            raise unknown_name("init", how, starts)
        return starts[how]()


def make_task(name: str, model: str = "mlp") -> Task:
    """Make a task from its name and its model's."""
    if name not in TASKS:
        raise unknown_name("task", name, TASKS)
    train, test = load_digits()
    num_features, num_classes = train.x.shape[1], int(train.y.max()) + 1
    make_model(model, num_features, num_classes)  # a wrong name is refused here, not in the first step
    return Task(name, lambda: make_model(model, num_features, num_classes), train, test, model)
