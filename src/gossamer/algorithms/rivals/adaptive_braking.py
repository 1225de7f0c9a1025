"""Adaptive Braking (Venigalla et al. 2020): a server with momentum that scales late gradients by their alignment.

    c_k = <g_k, V> / max(|g_k| |V|, tiny)                            V the server's velocity before the step
    V   <- mu V + (1/N) sum of (1 - rho c_k) g_k                     over the gradients that arrived
    x_s(t+1) = x_s(t) - eta V

A late gradient against the velocity is amplified, which brakes. A gradient along it is damped, and reversed for
rho c > 1. The alignment is taken over the whole model or per tensor. rho = 0 is ASGD with momentum mu. server.py
describes the messages. The formula is reconstructed from the description in the publication.
"""

from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Own, Place
from gossamer.algorithms.options import FRACTION, NOT_NEGATIVE, option
from gossamer.algorithms.registry import register
from gossamer.algorithms.rivals.server import Pushes, ServerBased
from gossamer.errors import UserError
from gossamer.shapes import Float, Tensor

TINY = 1e-12  # avoids 0/0 while the velocity is zero


@register("adaptive-braking")
@dataclass(frozen=True, kw_only=True)
class AdaptiveBraking(ServerBased):
    """Adaptive Braking: a server whose momentum brakes when late gradients oppose it."""

    origin = "adapted"
    revision = 2

    mu: float = option(0.9, "momentum of the rule itself", within=FRACTION)
    rho: float = option(2.0, "strength of the braking; 0 is plain momentum", within=NOT_NEGATIVE)
    granularity: str = option("model", "one alignment per model, or one per tensor", choices=("model", "tensor"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.server_momentum:
            raise UserError(
                f"adaptive-braking has a momentum of its own, got server_momentum {self.server_momentum}; use mu"
            )

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        return {"velocity": torch.zeros_like(x)}

    def corrected(self, server: Own, pushes: Pushes) -> Float[Tensor, "1 d"]:
        """Return the sum of (1 - rho c) g."""
        lengths = list(server.segments) if self.granularity == "tensor" else [server.x.shape[1]]
        parts = zip(
            pushes.message["g"].split(lengths, dim=1), server.state["velocity"].split(lengths, dim=1), strict=True
        )
        return torch.cat([(pushes.weights * self._scale(g, v)) @ g for g, v in parts], dim=1)

    def serve(self, server: Own, pushes: list[Pushes]) -> tuple[Float[Tensor, "1 d"], dict[str, Tensor]]:
        velocity = self.mu * server.state["velocity"] + self.mean_push(server, pushes)
        return server.x.sub(velocity, alpha=server.lr), {"velocity": velocity}

    def _scale(self, g: Float[Tensor, "m p"], velocity: Float[Tensor, "1 p"]) -> Float[Tensor, "1 m"]:
        """Return 1 - rho c of each sender, for the parameters that share one alignment."""
        lengths = torch.linalg.vector_norm(g, dim=1) * torch.linalg.vector_norm(velocity)
        alignment = (g @ velocity[0]) / lengths.clamp(min=TINY)
        scale: Tensor = 1 - self.rho * alignment
        return scale[None]
