"""SGP, stochastic gradient push (Assran et al. 2019), overlapped: push-sum over the messages that have arrived.

    y_i <- y_i - eta v_i                                    at z_i = y_i / omega_i, the model
    y_i(t+1)     = a_ii y_i     + sum_j a_ij (pushes of y_j that arrived since the last step)
    omega_i(t+1) = a_ii omega_i + sum_j a_ij (pushes of omega_j that arrived)

The columns of A sum to one. A push includes its weight, so delay affects numerator and denominator alike, and mass is
conserved: sum_i y_i plus the pushes under way changes by gradients alone. Messages contain running totals (totals.py),
so loss and reordering do not break this.
"""

from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Place, Update, Weights
from gossamer.algorithms.registry import register
from gossamer.algorithms.rivals.totals import heard_total, push_weights
from gossamer.shapes import Float, Tensor


@register("sgp", "osgp", "push-sum")
@dataclass(frozen=True, kw_only=True)
class Sgp(Algorithm):
    """SGP (overlapped): push-sum; late pushes include their weight."""

    origin = "adapted"
    sends_gradient = True

    @property
    def message(self) -> tuple[str, ...]:
        return ("pushed", "pushed_weight")

    @property
    def numbers(self) -> frozenset[str]:
        return frozenset({"pushed_weight"})

    @property
    def totals(self) -> frozenset[str]:
        return frozenset(self.message)

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        nothing, number = torch.zeros_like(x, dtype=torch.float64), x.new_zeros((len(x), 1), dtype=torch.float64)
        return {
            "y": x.clone(),
            "omega": torch.ones_like(x[:, :1]),
            "pushed": nothing,
            "pushed_weight": number,
            "heard": nothing,
            "heard_weight": number,
        }

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        """Return the totals, this step's push included."""
        state = own.state
        return {
            "pushed": state["pushed"] + (state["y"] - own.lr * own.v),
            "pushed_weight": state["pushed_weight"] + state["omega"],
        }

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Add the pushes that arrived; the model is the ratio y / omega."""
        assert own.place is not None
        state, dtype, sent = own.state, own.x.dtype, own.sent
        kept, shares = push_weights(own.place)
        heard, heard_weight = (heard_total(inbox, weights, shares, name) for name in self.message)
        kept = kept.to(dtype)
        y = kept * (state["y"] - own.lr * own.v) + (heard - state["heard"]).to(dtype)
        omega = kept * state["omega"] + (heard_weight - state["heard_weight"]).to(dtype)
        kept_state = {"y": y, "omega": omega, **sent, "heard": heard, "heard_weight": heard_weight}
        return Update(y / omega, state=kept_state)
