"""SGP, stochastic gradient push (Assran et al. 2019), overlapped: push-sum on whatever has arrived.

    y_i <- y_i - eta v_i                                    at z_i = y_i / omega_i, the model
    y_i(t+1)     = a_ii y_i     + sum_j a_ij (pushes of y_j that arrived since the last step)
    omega_i(t+1) = a_ii omega_i + sum_j a_ij (pushes of omega_j that arrived)

The columns of A add up to one. A push takes its weight along, so that lateness biases numerator and denominator
alike, and mass is conserved: sum_i y_i plus what is under way changes by gradients alone. Messages carry running
totals (totals.py), so that neither loss nor reordering breaks that.
"""

from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Place, Update, Weights
from gossamer.algorithms.registry import register
from gossamer.algorithms.rivals.totals import heard_total, push_weights, refuse_mixed_point
from gossamer.shapes import Float, Tensor


@register("sgp", "osgp", "push-sum")
@dataclass(frozen=True, kw_only=True)
class Sgp(Algorithm):
    """SGP (overlapped): push-sum, late pushes take their weight along."""

    def __post_init__(self) -> None:
        """Check the options."""
        refuse_mixed_point(self)

    @property
    def message(self) -> tuple[str, ...]:
        """All that was ever pushed, and its weight."""
        return ("pushed", "pushed_weight")

    @property
    def numbers(self) -> frozenset[str]:
        """The weight is one number."""
        return frozenset({"pushed_weight"})

    @property
    def totals(self) -> frozenset[str]:
        """Both are running totals."""
        return frozenset(self.message)

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        """Everyone has the weight 1 and has pushed and heard nothing."""
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
        """Return the totals with this step's push."""
        state = own.state
        return {
            "pushed": state["pushed"] + (state["y"] - own.lr * own.v),
            "pushed_weight": state["pushed_weight"] + state["omega"],
        }

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Add what arrived; the model is the ratio."""
        assert own.place is not None
        state, dtype, sent = own.state, own.x.dtype, own.sent
        kept, shares = push_weights(own.place)
        heard, heard_weight = (heard_total(inbox, weights, shares, name) for name in self.message)
        kept = kept.to(dtype)
        y = kept * (state["y"] - own.lr * own.v) + (heard - state["heard"]).to(dtype)
        omega = kept * state["omega"] + (heard_weight - state["heard_weight"]).to(dtype)
        kept_state = {"y": y, "omega": omega, **sent, "heard": heard, "heard_weight": heard_weight}
        return Update(y / omega, state=kept_state)
