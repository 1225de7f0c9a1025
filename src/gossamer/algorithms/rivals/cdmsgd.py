"""CDMSGD (Jiang et al. 2017), synchronous consensus SGD with momentum.

    V_i <- mu V_i - eta g_i
    x_i(t+1) = sum_j w_ij x_j(t) + V_i

The velocity is not mixed. With look_ahead, Nesterov's form, g_i is taken at x_i + mu V_i. Agents wait for their
neighbours, so no message is late. mu = 0 is synchronous D-PSGD.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Place, Update, Weights
from gossamer.algorithms.options import FRACTION, option
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import mix_heard
from gossamer.errors import UserError
from gossamer.shapes import Float, Tensor


@register("cdmsgd")
@dataclass(frozen=True, kw_only=True)
class Cdmsgd(Algorithm):
    """CDMSGD: synchronous SGD with a momentum of the rule itself; no message is late."""

    origin = "published"
    waits: ClassVar[bool] = True

    mu: float = option(0.9, "momentum of the rule itself", within=FRACTION)
    look_ahead: bool = option(False, "take the gradient at x + mu V, Nesterov's form (one more gradient per step)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.look_ahead and self.gradient_at == "mixed":
            raise UserError("look_ahead and gradient_at=mixed each name a point for the gradient; drop one of them")

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | ({"gradient"} if self.look_ahead else set())

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        return {"velocity": torch.zeros_like(x)}

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return W x plus the new velocity."""
        mixed = mix_heard(own, inbox, weights)
        kept = self.mu * own.state["velocity"]
        velocity = torch.add(kept, self._gradient(own, mixed, kept), alpha=-own.lr)
        return Update(mixed.add_(velocity), state={"velocity": velocity})

    def _gradient(self, own: Own, mixed: Float[Tensor, "a d"], kept: Float[Tensor, "a d"]) -> Float[Tensor, "a d"]:
        if not self.look_ahead and self.gradient_at == "own":
            return own.g
        assert own.evaluate is not None
        return own.evaluate.gradient(own.x + kept if self.look_ahead else mixed)

    def check_local(self, *, plain: bool) -> None:
        super().check_local(plain=plain)
        if not plain:
            raise UserError(
                "cdmsgd has a momentum of its own, so it needs plain SGD as local optimiser; "
                "set momentum and weight decay to 0, and mu in place of momentum"
            )
