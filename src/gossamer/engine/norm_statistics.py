"""The running statistics of BatchNorm, which gradients do not update.

They stay with each agent (local), are sent and mixed like the parameters (mixed), or are recomputed on a few batches
before each evaluation (recalibrated). With label skew, local statistics do not fit the mixed parameters.
"""

from collections.abc import Mapping

import torch

from gossamer.algorithms import Inbox, Late, Own, Weights
from gossamer.algorithms.steps import mix_heard, mix_reliable
from gossamer.engine.mailbox import Mailbox
from gossamer.shapes import Float, Tensor
from gossamer.state.checkpoint import part_of
from gossamer.state.history import Ring


class Statistics:
    """The buffers of all agents, [N, *shape] by name. With `mixed`, messages carry them."""

    def __init__(self, buffers: Mapping[str, Tensor], *, mixed: bool) -> None:
        self.buffers = dict(buffers)
        self._travel = [b for b in self.buffers.values() if b.is_floating_point()] if mixed else []
        self._ring: Ring | None = None
        self._mix, self._reliable_delay = mix_heard, 0

    @property
    def bytes_sent(self) -> int:
        """The bytes that they add to each message."""
        return sum(buffer[0].numel() * buffer.element_size() for buffer in self._travel)

    def join(self, mailbox: Mailbox) -> None:
        """Keep a history as deep as that of the parameters, and mix with the same neighbours."""
        self._mix = mix_heard if mailbox.algorithm.hears_late else mix_reliable
        self._reliable_delay = mailbox.network.reliable_delay
        if self._travel and mailbox.rings:
            self._ring = Ring(next(iter(mailbox.rings.values())).depth, self._flat())

    def mix(self, step: int, inbox: Inbox, weights: Weights) -> None:
        """Mix them over all held messages, late ones included, with the weights of the parameters."""
        if not self._travel:
            return
        fresh = flat = self._flat()
        groups = []
        if self._ring is not None:
            self._ring.push(step, flat)
            groups = [Late(late.age, late.weights, {"x": self._ring.at(step - late.age)}) for late in inbox.late]
            if self._reliable_delay:
                fresh = self._ring.at(step - self._reliable_delay)
        own = Own(x=flat, g=flat, v=flat, lr=0.0, t=step, segments=(flat.shape[1],))
        self._set(self._mix(own, Inbox(fresh, tuple(groups)), weights))

    def _flat(self) -> Float[Tensor, "n b"]:
        return torch.cat([buffer.reshape(len(buffer), -1) for buffer in self._travel], dim=1)

    def _set(self, flat: Float[Tensor, "n b"]) -> None:
        pieces = flat.split([buffer[0].numel() for buffer in self._travel], dim=1)
        for buffer, piece in zip(self._travel, pieces, strict=True):
            buffer.copy_(piece.view_as(buffer))

    def state_dict(self) -> dict[str, Tensor]:
        """Return the buffers, including those in flight."""
        state = {f"buffer.{name}": buffer for name, buffer in self.buffers.items()}
        if self._ring is not None:
            state |= {f"ring.{slot}": held for slot, held in self._ring.state_dict().items()}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        for name, buffer in self.buffers.items():
            buffer.copy_(state[f"buffer.{name}"])
        if self._ring is not None:
            self._ring.load_state_dict(part_of(state, "ring."))
