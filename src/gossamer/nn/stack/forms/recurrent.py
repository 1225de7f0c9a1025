"""Recurrent layers, which vmap has no rule for: one agent after the other."""

from typing import Any

import torch
from torch import nn

from gossamer.nn.stack.form import Form, register_form
from gossamer.shapes import Tensor


class Looped(Form):
    """The layer's own code on one agent's parameters at a time. For layers without children."""

    slow = True

    def run(self, *inputs: Any) -> Any:
        """Return the agents' outputs, stacked."""
        return _stacked([self._agent(i)(*_of_agent(inputs, i)) for i in range(self.session.n)])

    def flatten_parameters(self) -> None:
        """Leave the parameters of all agents as they are; each agent's are laid out for the GPU when it runs."""

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


for _layer in (nn.RNN, nn.LSTM, nn.GRU, nn.RNNCell, nn.LSTMCell, nn.GRUCell):
    register_form(_layer, Looped)
