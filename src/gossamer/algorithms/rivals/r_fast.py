"""R-FAST, robust fully asynchronous gradient tracking (Zhu, Tian, Huang, Xu and He 2023).

    z_i(t)   = v_i(t) + o_i(t)                                  the tracker; o_i(0) = 0
    u_i(t)   = x_i(t) - eta a_ii z_i(t)                         sent
    x_i(t+1) = w_ii u_i(t) + sum_j w_ij u_j(s_ij)               the newest messages held; rows sum to one
    o_i(t+1) = a_ii z_i(t) + sum_j a_ij (pushes of z_j that arrived since the last step) - v_i(t)

The columns of A sum to one, and messages contain running totals of z (totals.py). So the trackers plus the pushes under
way sum to the newest directions at every step, however many messages are late, reordered or lost.

An agent descends along the part a_ii z_i of the tracker that it keeps. The first tracker is not split: at step 0 a_ii
is 1 and nothing is pushed. descends=whole is ours: agents descend along all of z_i and split from step 0 on.
"""

from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Place, Update, Weights
from gossamer.algorithms.options import option
from gossamer.algorithms.registry import register
from gossamer.algorithms.rivals.totals import heard_total, push_weights
from gossamer.algorithms.steps import mix_part
from gossamer.shapes import Float, Tensor


@register("r-fast")
@dataclass(frozen=True, kw_only=True)
class RFast(Algorithm):
    """R-FAST: gradient tracking by running totals, robust to delay and loss."""

    origin = "adapted"
    revision = 2
    sends_gradient = True

    descends: str = option(
        "kept",
        "part of the tracker to descend along: the part that the agent keeps, as published, or the whole",
        choices=("kept", "whole"),
    )

    @property
    def message(self) -> tuple[str, ...]:
        return ("u", "pushed")

    @property
    def totals(self) -> frozenset[str]:
        return frozenset({"pushed"})

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        """The first tracker is the first direction."""
        nothing = torch.zeros_like(x, dtype=torch.float64)
        return {"offset": torch.zeros_like(x), "pushed": nothing, "heard": nothing}

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        """Return the state after its step, and the total of all trackers pushed so far."""
        z, pushed = own.v + own.state["offset"], own.state["pushed"]
        along = self._kept(own).to(z.dtype) * z if self.descends == "kept" else z
        return {"u": own.x - own.lr * along, "pushed": pushed + z if self._splits(own.t) else pushed}

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Mix the states held; keep a part of the tracker and add the pushes that arrived."""
        assert own.place is not None
        sent, z = own.sent, own.v + own.state["offset"]
        _, shares = push_weights(own.place)
        heard = heard_total(inbox, weights, shares, "pushed")
        arrived = (heard - own.state["heard"]).to(z.dtype)
        offset = self._kept(own).to(z.dtype) * z + arrived - own.v
        x = mix_part(sent["u"], inbox, weights, "u")
        return Update(x, state={"offset": offset, "pushed": sent["pushed"], "heard": heard})

    def _splits(self, t: int) -> bool:
        return t > 0 or self.descends == "whole"

    def _kept(self, own: Own) -> Float[Tensor, "a 1"]:
        """Return the share of the tracker that agents keep at this step."""
        assert own.place is not None
        kept, _ = push_weights(own.place)
        return kept if self._splits(own.t) else torch.ones_like(kept)
