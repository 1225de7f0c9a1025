"""A module as a function of one flat vector, so that N agents are the rows of one [N, d] tensor."""

import math
from collections.abc import MutableMapping

import torch
from torch import nn

from gossamer.errors import UserError
from gossamer.shapes import Bool, Float, Tensor


class FlatModule:
    """A template module: the place of each parameter in a flat vector, and the output for such a vector."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.names = [name for name, _ in module.named_parameters()]
        self.shapes = [parameter.shape for parameter in module.parameters()]
        self.segments = tuple(math.prod(shape) for shape in self.shapes)
        if not self.segments:
            raise UserError("the model has no parameters to train")

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(self.segments)

    @property
    def frozen(self) -> Bool[Tensor, " d"]:
        """Which parameters are not trained."""
        return torch.cat([torch.full((p.numel(),), not p.requires_grad) for p in self.module.parameters()])

    def initial(self) -> Float[Tensor, " d"]:
        """Return the template's own parameters as a flat vector."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.module.parameters()])

    def __call__(
        self, flat: Float[Tensor, " d"], inputs: Tensor, buffers: MutableMapping[str, Tensor] | None = None
    ) -> Tensor:
        """Return the module's output on `inputs` with the parameters in `flat`.

        Given buffers change in place, or in the mapping if the module assigns new ones.
        """
        pieces = flat.split(list(self.segments))
        parameters = {
            name: piece.view(shape) for name, piece, shape in zip(self.names, pieces, self.shapes, strict=True)
        }
        buffers = {} if buffers is None else buffers
        values = {**parameters, **buffers}  # functional_call stores newly assigned buffers here
        output: Tensor = torch.func.functional_call(self.module, values, (inputs,))
        for name in buffers:
            if values[name] is not buffers[name]:
                buffers[name] = values[name].detach()
        return output
