"""What a model keeps besides its parameters: the running statistics of BatchNorm, which no gradient moves.

They stay with each agent (local), travel with the parameters and are mixed like them (mixed), or are taken anew on a
few batches before an evaluation (recalibrated): with label skew local ones belie what the parameters have learnt.
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
    """The buffers of all agents, [N, *shape] by name; `mixed` lets them travel."""

    def __init__(self, buffers: Mapping[str, Tensor], *, mixed: bool) -> None:
        self.buffers = dict(buffers)
        self._travel = [b for b in self.buffers.values() if b.is_floating_point()] if mixed else []
        self._ring: Ring | None = None
        self._mix, self._reliable_delay = mix_heard, 0

    @property
    def bytes_sent(self) -> int:
        """How much a message grows by them."""
        return sum(buffer[0].numel() * buffer.element_size() for buffer in self._travel)

    def join(self, mailbox: Mailbox) -> None:
        """Keep a history of them as deep as that of the parameters, and mix them with the same neighbours."""
        self._mix = mix_heard if mailbox.algorithm.hears_late else mix_reliable
        self._reliable_delay = mailbox.network.reliable_delay
        if self._travel and mailbox.rings:
            self._ring = Ring(next(iter(mailbox.rings.values())).depth, self._flat())

    def mix(self, step: int, inbox: Inbox, weights: Weights) -> None:
        """Average them over what was heard, late messages included, with the weights of the parameters."""
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
        """Return the buffers and those in flight."""
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
