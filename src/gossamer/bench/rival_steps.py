"""Other ways to take one gradient step of N models, all from the engine's parameters and first batch.

Each rival has an advantage: its batch is already on the device, and it neither mixes nor sends.
"""

import copy

import torch
from torch import nn

from gossamer.bench.workloads import LEARNING_RATE, SEED
from gossamer.engine.cuda_graph import Recorded
from gossamer.shapes import Float, Tensor
from gossamer.tasks import Task


class NaiveLoop:
    """N separate modules, each with its optimiser, one after the other."""

    def __init__(self, task: Task, inputs: Tensor, targets: Tensor) -> None:
        first = task.fresh_module(SEED).module.to(inputs.device)
        self.modules = [copy.deepcopy(first).train() for _ in inputs]
        self._optimizers = [torch.optim.SGD(module.parameters(), lr=LEARNING_RATE) for module in self.modules]
        self._loss, self._inputs, self._targets = task.loss, inputs, targets

    def step(self) -> None:
        """Forward, backward and a step of SGD for one module after the other."""
        for module, optimizer, inputs, targets in zip(
            self.modules, self._optimizers, self._inputs, self._targets, strict=True
        ):
            optimizer.zero_grad()
            self._loss(module(inputs), targets).backward()
            optimizer.step()

    def gradient(self) -> Float[Tensor, "n d"]:
        """Return the gradients of the last step."""
        return torch.stack(
            [torch.cat([_gradient_of(p).flatten() for p in module.parameters()]) for module in self.modules]
        )


def _gradient_of(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


class Vmapped:
    """torch.func.vmap of torch.func.grad over stacked parameters, as in torch's tutorial on model ensembling."""

    def __init__(self, task: Task, inputs: Tensor, targets: Tensor) -> None:
        base = task.fresh_module(SEED).module.to(inputs.device).train()
        stacked = torch.func.stack_module_state([copy.deepcopy(base) for _ in inputs])
        self.parameters = {name: value.detach() for name, value in stacked[0].items()}
        self._buffers: dict[str, Tensor] = stacked[1]
        self._inputs, self._targets = inputs, targets
        self._last: dict[str, Tensor] = {}

        def loss(
            parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor, y: Tensor
        ) -> tuple[Tensor, dict[str, Tensor]]:
            # Copies, because a transform must not change its inputs.
            moved = {name: buffer.clone() for name, buffer in buffers.items()}
            return task.loss(torch.func.functional_call(base, (parameters, moved), (x,)), y), moved

        self._gradients = torch.func.vmap(torch.func.grad(loss, has_aux=True))

    def step(self) -> None:
        """Compute all gradients at once, then take a step of SGD."""
        self._last, self._buffers = self._gradients(self.parameters, self._buffers, self._inputs, self._targets)
        gradients = [self._last[name] for name in self.parameters]
        torch._foreach_add_(list(self.parameters.values()), gradients, alpha=-LEARNING_RATE)

    def gradient(self) -> Float[Tensor, "n d"]:
        """Return the gradients of the last step."""
        return torch.cat([self._last[name].flatten(1) for name in self.parameters], dim=1)


class OneModel:
    """One model on the batches of all agents together: the same amount of arithmetic, but not decentralised.

    It computes in `dtype` with channels-last feature maps; on a GPU it is one CUDA graph.
    """

    def __init__(self, task: Task, inputs: Tensor, targets: Tensor, dtype: torch.dtype) -> None:
        module = task.fresh_module(SEED).module.to(device=inputs.device, dtype=dtype).train()
        batch = inputs.flatten(0, 1).to(dtype)
        if batch.dim() == 4:
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            batch = batch.contiguous(memory_format=torch.channels_last)
        self._module, self._loss = module, task.loss
        self._places = [batch, targets.flatten(0, 1)]
        self._recorded = Recorded(self._run, self._places)

    def step(self) -> None:
        """Forward, backward and a step of SGD."""
        self._recorded(*self._places)

    def _run(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor]:
        parameters: list[Tensor] = list(self._module.parameters())
        loss = self._loss(self._module(inputs).float(), targets)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-LEARNING_RATE)
        return (loss.detach(),)
