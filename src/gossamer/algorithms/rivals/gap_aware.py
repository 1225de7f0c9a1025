"""Gap-Aware (Barkai, Hakimi, Schuster 2019): the server divides a gradient by how far its model has moved since.

    c_k = g_k / G_k,    G_k = 1 + |x_s - x_k| / r        element by element

r is the root mean square of the server's steps x_s(t+1) - x_s(t): a running mean with decay 0.999 and bias correction.
G_k is the gap in steps plus one. G = 1 until the server has taken a step.
"""

from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Own, Place
from gossamer.algorithms.registry import register
from gossamer.algorithms.rivals.server import Pushes, ServerBased
from gossamer.shapes import Float, Tensor

KEPT = 0.999  # decay of the mean square of steps
TINY = 1e-12  # avoids a division by zero for a parameter that never moved


@register("gap-aware")
@dataclass(frozen=True, kw_only=True)
class GapAware(ServerBased):
    """Gap-Aware: a server that divides gradients by how far its model has moved."""

    origin = "adapted"

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        return {**super().start(x, place), "squares": torch.zeros_like(x)}

    def corrected(self, server: Own, pushes: Pushes) -> Float[Tensor, "1 d"]:
        if server.t == 0:
            return super().corrected(server, pushes)
        mean_square = server.state["squares"] / (1 - KEPT**server.t)
        gap = 1 + (server.x - pushes.message["x"]).abs() / (mean_square.sqrt() + TINY)
        return pushes.weights @ (pushes.message["g"] / gap)

    def serve(self, server: Own, pushes: list[Pushes]) -> tuple[Float[Tensor, "1 d"], dict[str, Tensor]]:
        w, kept = super().serve(server, pushes)
        squares = KEPT * server.state["squares"] + (1 - KEPT) * (w - server.x).square()
        return w, {**kept, "squares": squares}
