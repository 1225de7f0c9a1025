"""The interface of an execution: gradients, losses and outputs of N models at once."""

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
    """The parameters of an execution."""

    task: Task
    module: FlatModule  # a copy of its own: the execution may change it
    num_agents: int
    device: str
    dtype: torch.dtype  # data type of states and gradients
    precision: str = "float32"
    compile: bool = False

    @property
    def working_dtype(self) -> torch.dtype:
        """The data type in which the model computes."""
        return torch.bfloat16 if self.precision == "bf16" else self.dtype


def buffers_of(module: nn.Module, num_agents: int) -> dict[str, Tensor]:
    """Return a copy of each of a module's buffers for every agent."""
    return {name: buffer.detach().expand(num_agents, *buffer.shape).clone() for name, buffer in module.named_buffers()}


def only_reads(module: nn.Module) -> bool:
    """Say whether no forward pass can change the parameters. Layers of torch and of gossamer do not, so no other code.

    An embedding with max_norm does.
    """

    def known(layer: nn.Module) -> bool:
        changed = layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer)
        plain = type(layer).__module__.startswith(("torch.nn.modules.", "gossamer.nn."))
        return plain and not changed and getattr(layer, "max_norm", None) is None

    return all(map(known, module.modules()))


class Execution(ABC):
    """N models with the parameters x [N, d]. `buffers` holds their buffers, [N, *shape] by name."""

    name: ClassVar[str]
    # The module that runs; a setting of a layer, such as BatchNorm's momentum, applies to all agents.
    running: nn.Module

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.only_reads = only_reads(setup.module.module)
        self.buffers: dict[str, Tensor] = {}
        self.parameters = torch.empty((setup.num_agents, setup.module.size), dtype=setup.dtype, device=setup.device)
        self._frozen = setup.module.frozen.to(setup.device)
        self._any_frozen = bool(self._frozen.any())

    def gradient(
        self, x: Float[Tensor, "n d"], inputs: Tensor, targets: Tensor
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Return each agent's gradient and loss on its batch, in training mode. This updates running statistics."""
        with self._arithmetic():
            g, loss = self._gradient(x, inputs, targets)
        return (g.masked_fill(self._frozen, 0) if self._any_frozen else g), loss

    @abstractmethod
    def _gradient(self, x: Float[Tensor, "n d"], inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return gradients and losses."""

    def outputs(self, x: Float[Tensor, "n d"], inputs: Tensor, *, training: bool = False) -> Tensor:
        """Return each agent's outputs on its inputs, without gradients; by default in evaluation mode."""
        with self._arithmetic(), torch.no_grad():
            return self._outputs(x, inputs, training=training).to(self.setup.dtype)

    @abstractmethod
    def _outputs(self, x: Float[Tensor, "n d"], inputs: Tensor, *, training: bool) -> Tensor:
        """Return outputs."""

    @contextlib.contextmanager
    def _arithmetic(self) -> Iterator[None]:
        """Within the context, multiply with the precision of the settings. It applies to the models only."""
        before, cudnn_before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        reduced = self.setup.precision != "float32"
        torch.set_float32_matmul_precision("high" if reduced else "highest")
        torch.backends.cudnn.allow_tf32 = reduced
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
            torch.backends.cudnn.allow_tf32 = cudnn_before

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of one agent, in full precision."""
        return self.setup.task.loss(outputs.to(self.setup.dtype), targets)
