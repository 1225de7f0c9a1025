"""A module as a function of one flat vector, so that N agents are the rows of one [N, d] tensor."""

import math
from collections.abc import MutableMapping

import torch
from torch import nn

from gossamer.errors import UserError
from gossamer.shapes import Bool, Float, Tensor


class FlatModule:
    """A template module: where each parameter lies in a flat vector, and the module's output for such a vector."""

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
        """Which parameters are not to be trained."""
        return torch.cat([torch.full((p.numel(),), not p.requires_grad) for p in self.module.parameters()])

    def initial(self) -> Float[Tensor, " d"]:
        """Return the template's own parameters, flat."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.module.parameters()])

    def __call__(
        self, flat: Float[Tensor, " d"], inputs: Tensor, buffers: MutableMapping[str, Tensor] | None = None
    ) -> Tensor:
        """Return the module's output on `inputs` with the parameters in `flat`.

        Given buffers are moved in place, or replaced in the mapping where the module sets them anew.
        """
        pieces = flat.split(list(self.segments))
        parameters = {
            name: piece.view(shape) for name, piece, shape in zip(self.names, pieces, self.shapes, strict=True)
        }
        buffers = {} if buffers is None else buffers
        values = {**parameters, **buffers}  # functional_call leaves here what the module made of them
        output: Tensor = torch.func.functional_call(self.module, values, (inputs,))
        for name in buffers:
            if values[name] is not buffers[name]:
                buffers[name] = values[name].detach()
        return output
