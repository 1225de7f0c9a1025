"""Linear, embedding, dropout and recurrent layers of n agents.

vmap has no rule for recurrent layers, so they run agent by agent.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from gossamer.nn.stack.linear_function import LinearFunction
from gossamer.nn.stack.stacked_form import Form, register_form
from gossamer.shapes import Float, Int, Tensor


class StackedLinear(Form):
    """One batched matrix product; on a CPU agent by agent where that is faster."""

    weight: Float[Tensor, "n out in"]
    bias: Float[Tensor, "n out"] | None

    def run(self, x: Float[Tensor, "n *rest in"]) -> Float[Tensor, "n *rest out"]:
        """Return x_i W_i^T + b_i for every agent i."""
        rows = x if x.dim() == 3 else x.reshape(x.shape[0], -1, x.shape[-1])
        weight = self.weight.to(x.dtype)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        if not x.is_cuda:
            y: Tensor = LinearFunction.apply(self.session, rows, weight, bias)
        elif bias is None:
            y = torch.bmm(rows, weight.mT)
        else:
            y = torch.baddbmm(bias[:, None], rows, weight.mT)
        return y if x.dim() == 3 else y.view(*x.shape[:-1], y.shape[-1])


class StackedEmbedding(Form):
    """One look-up in the concatenated tables of the agents."""

    weight: Float[Tensor, "n num size"]
    padding_idx: int | None
    max_norm: float | None
    norm_type: float
    scale_grad_by_freq: bool

    @classmethod
    def supports(cls, layer: nn.Module) -> bool:
        """Refuse sparse gradients, which cannot be split over the agents."""
        return not getattr(layer, "sparse", True)

    def run(self, indices: Int[Tensor, "n *rest"]) -> Float[Tensor, "n *rest size"]:
        """Return each agent's rows."""
        n, num, _ = self.weight.shape
        start = torch.arange(0, n * num, num, device=indices.device).view(n, *[1] * (indices.dim() - 1))
        # An index outside its own table must fail, not read the next agent's: n * num is in no table.
        inside = (indices >= 0) & (indices < num)
        rows = torch.where(inside, indices + start, n * num)
        table = self.weight.flatten(0, 1)
        y = F.embedding(rows, table, None, self.max_norm, self.norm_type, self.scale_grad_by_freq)
        y = y.to(self.session.dtype)
        if self.padding_idx is None:
            return y
        # The gradient of the n padding rows is cut here, because torch cuts it only for one row.
        return torch.where((indices == self.padding_idx).unsqueeze(-1), y.detach(), y)


class Dropout(Form):
    """One mask over the activations of all agents, different for each agent."""

    p: float

    def run(self, x: Float[Tensor, "n *rest"]) -> Float[Tensor, "n *rest"]:
        """Return the inputs with some of them zeroed; not in place, because a shared input is expanded."""
        return F.dropout(x, self.p, self.training)


class Looped(Form):
    """The layer's own code, agent by agent. For layers without children."""

    slow = True

    def run(self, *inputs: Any) -> Any:
        """Return the agents' outputs, stacked."""
        return _stacked([self._agent(i)(*_of_agent(inputs, i)) for i in range(self.session.n)])

    def flatten_parameters(self) -> None:
        """Do nothing: each agent's parameters are laid out for the GPU when it runs."""

    def _agent(self, i: int) -> nn.Module:
        """Return the layer of agent i, whose parameters are views of row i."""
        parameters = {name: None if value is None else value[i] for name, value in self._parameters.items()}
        agent = object.__new__(self.layer_type)
        agent.__dict__ = {**self.__dict__, "_parameters": parameters}
        return agent


def _of_agent(value: Any, i: int) -> Any:
    if isinstance(value, Tensor):
        return value[i]
    return tuple(_of_agent(part, i) for part in value) if isinstance(value, tuple | list) else value


def _stacked(values: list[Any]) -> Any:
    if isinstance(values[0], Tensor):
        return torch.stack(values)
    return tuple(_stacked(list(parts)) for parts in zip(*values, strict=True))


register_form(nn.Linear, StackedLinear)
register_form(nn.Embedding, StackedEmbedding)
register_form(nn.Dropout, Dropout)
for _layer in (nn.RNN, nn.LSTM, nn.GRU, nn.RNNCell, nn.LSTMCell, nn.GRUCell):
    register_form(_layer, Looped)
