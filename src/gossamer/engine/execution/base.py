"""What every way of running N models offers: gradients, losses and outputs of all of them at once."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from gossamer.nn import FlatModule
from gossamer.shapes import Float, Tensor
from gossamer.tasks import Task


@dataclass(frozen=True)
class Setup:
    """What an execution is made for."""

    task: Task
    module: FlatModule  # its own copy: an execution may change it
    num_agents: int
    device: str
    dtype: torch.dtype  # of states and gradients
    precision: str = "float32"
    compile: bool = False

    @property
    def working_dtype(self) -> torch.dtype:
        """The type in which the model computes."""
        return torch.bfloat16 if self.precision == "bf16" else self.dtype


def buffers_of(module: nn.Module, num_agents: int) -> dict[str, Tensor]:
    """Return a copy of each of a module's buffers for every agent."""
    return {name: buffer.detach().expand(num_agents, *buffer.shape).clone() for name, buffer in module.named_buffers()}


class Execution(ABC):
    """N models with the parameters x [N, d]. `buffers` holds what else each keeps, [N, *shape] by name."""

    name: ClassVar[str]
    running: nn.Module  # the module whose layers run: settings of theirs, such as a momentum, count for all agents

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.buffers: dict[str, Tensor] = {}
        self.parameters = torch.empty((setup.num_agents, setup.module.size), dtype=setup.dtype, device=setup.device)
        self._frozen = setup.module.frozen.to(setup.device)
        self._any_frozen = bool(self._frozen.any())

    def gradient(
        self, x: Float[Tensor, "n d"], inputs: Tensor, targets: Tensor
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Return each agent's gradient and loss on its batch, in training mode: running statistics move."""
        with self._arithmetic():
            g, loss = self._gradient(x, inputs, targets)
        return (g.masked_fill(self._frozen, 0) if self._any_frozen else g), loss

    @abstractmethod
    def _gradient(self, x: Float[Tensor, "n d"], inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return gradients and losses."""

    def outputs(self, x: Float[Tensor, "n d"], inputs: Tensor, *, training: bool = False) -> Tensor:
        """Return each agent's outputs on its inputs, without gradients; in evaluation mode unless told otherwise."""
        with self._arithmetic(), torch.no_grad():
            return self._outputs(x, inputs, training=training).to(self.setup.dtype)

    @abstractmethod
    def _outputs(self, x: Float[Tensor, "n d"], inputs: Tensor, *, training: bool) -> Tensor:
        """Return outputs."""

    @contextlib.contextmanager
    def _arithmetic(self) -> Iterator[None]:
        """Let the models, and nothing but them, multiply in less than float32 where that was asked for."""
        before, cudnn_before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        less = self.setup.precision != "float32"
        torch.set_float32_matmul_precision("high" if less else "highest")
        torch.backends.cudnn.allow_tf32 = less
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
            torch.backends.cudnn.allow_tf32 = cudnn_before

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of one agent, in full precision."""
        return self.setup.task.loss(outputs.to(self.setup.dtype), targets)
