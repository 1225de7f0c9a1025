"""All agents in one network: grouped convolutions, batched products, norms over all agents' channels (nn/stack)."""

from collections.abc import Callable

import torch

from gossamer.engine.execution.base import Execution, Setup
from gossamer.nn import kernels, stack
from gossamer.shapes import Float, Tensor


class StackedExecution(Execution):
    """All agents in one stacked network. Its parameters are views of one [N, d] tensor: one copy sets a state."""

    name = "stacked"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.running = self.network = stack(setup.module.module, setup.num_agents)
        self.network.to(device=setup.device, dtype=setup.dtype)
        self.network.bind(self.parameters).compute_in(setup.working_dtype)
        self._leaves = [leaf.requires_grad_() for leaf in self.network.stacked_parameters().values()]
        self.buffers = self.network.stacked_buffers()
        self._bound = self.parameters
        self._losses = torch.func.vmap(self.loss)
        self._step: Callable[..., tuple[Tensor, ...]] = self._forward_backward
        self._compiled = False

    def _gradient(self, x: Float[Tensor, "n d"], inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        self._set(x)
        self.network.train()
        if self.setup.compile and not self._compiled:
            self._step, self._compiled = self._fuse(inputs, targets), True
        if x.is_cuda or self.setup.compile:
            loss, *gradients = self._step(inputs, targets)
            return torch.cat([gradient.reshape(len(x), -1) for gradient in gradients], dim=1), loss
        g = torch.empty_like(x)
        with self.network.gradients_to(g) as places:
            loss, *gradients = self._step(inputs, targets)
        for place, gradient in zip(places, gradients, strict=True):
            if gradient.data_ptr() != place.data_ptr():  # its layer wrote it elsewhere
                place.copy_(gradient)
        return g, loss

    def _forward_backward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        losses = self._losses(self.network(inputs), targets)
        gradients = torch.autograd.grad(losses.sum(), self._leaves, materialize_grads=True)
        return losses.detach(), *gradients

    def _fuse(self, inputs: Tensor, targets: Tensor) -> Callable[..., tuple[Tensor, ...]]:
        """Trace the forward and backward pass of a step, and compile it with torch.compile."""
        from torch.fx.experimental.proxy_tensor import make_fx

        held = [*self._leaves, *self.buffers.values()]
        before = [tensor.detach().clone() for tensor in held]

        def step(held: list[Tensor], inputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
            return self._forward_backward(inputs, targets)

        devices = [inputs.device] if inputs.is_cuda else []
        # Tracing does not see the fused kernels, so they are off. Dropout here must not shift the draws of the run.
        with kernels.switched_off(), torch.random.fork_rng(devices=devices):
            graph = make_fx(step)(held, inputs, targets)
        for tensor, value in zip(held, before, strict=True):
            tensor.detach().copy_(value)
        fused = torch.compile(graph)
        return lambda inputs, targets: fused([tensor.detach() for tensor in held], inputs, targets)

    def _outputs(self, x: Float[Tensor, "n d"], inputs: Tensor, *, training: bool) -> Tensor:
        self._set(x)
        self.network.train(training)
        outputs: Tensor = self.network(inputs)
        return outputs

    def _set(self, x: Float[Tensor, "n d"]) -> None:
        """Set the parameters: on a GPU copy them to the recorded address, on a CPU bind them without a copy."""
        if x is self._bound:
            return
        if x.is_cuda:
            self.parameters.copy_(x)
        else:
            self.network.bind(x)
            self._bound = x
