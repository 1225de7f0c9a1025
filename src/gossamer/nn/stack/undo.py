"""To take a forward pass back that failed half-way: it may have moved running statistics and drawn random numbers."""

import torch
from torch import nn

from gossamer.shapes import Tensor


class Undo:
    """What a forward pass may change, as it was before."""

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self._buffers: list[tuple[Tensor, Tensor]] = [(buffer, buffer.clone()) for buffer in module.buffers()]
        self._device = device
        self._random = torch.get_rng_state()
        # A captured pass is played back later, so the numbers that it draws now are none.
        draws_now = device.type == "cuda" and not torch.cuda.is_current_stream_capturing()
        self._gpu_random = torch.cuda.get_rng_state(device) if draws_now else None

    def restore(self) -> None:
        """Put everything back."""
        for buffer, value in self._buffers:
            buffer.copy_(value)
        torch.set_rng_state(self._random)
        if self._gpu_random is not None:
            torch.cuda.set_rng_state(self._gpu_random, self._device)
