"""Adaptive Braking (Venigalla et al. 2020) as the local optimiser of D-ASGD.

    c_i = <g_i, V_i> / max(|g_i| |V_i|, tiny)                  alignment of gradient and velocity
    V_i <- mu V_i + (1 - rho c_i) g_i
    x_i(t+1) = sum_{j in R} w_ij x_j(t) + sum_{k in R^c} w_ik x_k(t - tau) - eta V_i

A gradient against the velocity is amplified, which brakes. A gradient along it is damped, and reversed for rho c > 1.
The alignment is taken over the whole model or per tensor. rho = 0 is D-ASGD with momentum mu.
"""

import math
from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Place, Update, Weights
from gossamer.algorithms.options import option
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import mix_heard
from gossamer.errors import UserError
from gossamer.shapes import Float, Tensor

TINY = 1e-12  # avoids 0/0 while the velocity is zero


@dataclass(frozen=True, kw_only=True)
class WithVelocity(Algorithm):
    """Base of the rules with a momentum of their own."""

    origin = "adapted"

    mu: float = option(0.9, "momentum of the rule itself")

    def __post_init__(self) -> None:
        if not 0 <= self.mu < 1:
            raise UserError(f"mu must lie in [0, 1), got {self.mu}; use for example 0.9")

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        return {"velocity": torch.zeros_like(x)}

    def check_local(self, *, plain: bool) -> None:
        super().check_local(plain=plain)
        if not plain:
            raise UserError(
                f"{self.name} has a momentum of its own, so it needs plain SGD as local optimiser; "
                "set momentum and weight decay to 0, and mu in place of momentum"
            )


@register("adaptive-braking")
@dataclass(frozen=True, kw_only=True)
class AdaptiveBraking(WithVelocity):
    """Adaptive Braking: D-ASGD with a momentum that brakes when gradients oppose it."""

    rho: float = option(2.0, "strength of the braking; 0 is plain momentum")
    granularity: str = option("model", "one alignment per model, or one per tensor", choices=("model", "tensor"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.rho < math.inf:
            raise UserError(f"rho must be 0 or more and finite, got {self.rho}; use for example 2")

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return the mean of all messages held minus eta times the new velocity."""
        mixed, g = mix_heard(own, inbox, weights), own.g
        if self.gradient_at == "mixed":
            assert own.evaluate is not None
            g = own.evaluate.gradient(mixed)
        segments = own.segments if self.granularity == "tensor" else (own.x.shape[1],)
        parts = zip(*(values.split(list(segments), dim=1) for values in (g, own.state["velocity"])), strict=True)
        velocity = torch.cat([self._velocity(part, before) for part, before in parts], dim=1)
        return Update(mixed.sub_(velocity, alpha=own.lr), state={"velocity": velocity})

    def _velocity(self, g: Float[Tensor, "a p"], velocity: Float[Tensor, "a p"]) -> Float[Tensor, "a p"]:
        """Return the new velocity of the parameters that share one alignment."""
        lengths = torch.linalg.vector_norm(g, dim=1) * torch.linalg.vector_norm(velocity, dim=1)
        alignment = (g * velocity).sum(dim=1) / lengths.clamp(min=TINY)
        scale: Tensor = 1 - self.rho * alignment
        return self.mu * velocity + scale[:, None] * g
