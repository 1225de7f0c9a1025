"""DGA, delayed gradient averaging (Zhu et al. 2021): agents step at once and average the steps on arrival.

    u_i(t)   = x_i(0) - sum_{s <= t} eta(s) v_i(s)                            the agent's own steps alone
    x_i(t+1) = u_i(t) + sum_j c w_ij (u_j(s_ij) - u_i(s_ij))                  over all messages held

On a complete graph with uniform weights and one delay this is x_i(t+1) = x_i(t) - eta v_i(t) + eta (v_i - mean_j v_j),
the last term at t - tau: the mean replaces the agent's own direction of that step. Models are never mixed, only steps
and initial states. u is sent as a running total (totals.py), so the next message makes up for a lost one.

Without delay a disagreement e along an eigenvector of W with eigenvalue mu obeys e' = (1 - eta h mu) e under the
curvature h, so it grows if mu < 0. The factor c = 1 / (1 - mu) for the smallest such mu lifts that eigenvalue to zero.
c = 1 if there is none, as on complete graphs.
"""

import functools
from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Past, Place, Update, Weights
from gossamer.algorithms.registry import register
from gossamer.algorithms.rivals.totals import heard_total
from gossamer.network import LinkMatrix, Network, end_of_spectrum
from gossamer.shapes import Float, Tensor


@register("dga")
@dataclass(frozen=True, kw_only=True)
class Dga(Algorithm):
    """DGA: a local step at once, replaced by the neighbours' mean when their steps arrive."""

    origin = "adapted"
    sends_gradient = True

    @property
    def message(self) -> tuple[str, ...]:
        return ("steps",)

    @property
    def totals(self) -> frozenset[str]:
        return frozenset(self.message)

    @property
    def past(self) -> Past:
        return Past.STATE

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        """The initial states count as steps, so they are averaged too."""
        return {"steps": x.to(torch.float64, copy=True)}

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        return {"steps": own.state["steps"].sub(own.v, alpha=own.lr)}

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return the agent's own steps, corrected by those of its neighbours."""
        steps = own.sent["steps"]
        x = steps + self.correction(own, inbox, weights)
        return Update(x.to(own.x.dtype), state={"steps": steps})

    def correction(self, own: Own, inbox: Inbox, weights: Weights) -> Float[Tensor, "a d"]:
        """Return sum_j c w_ij (u_j(s_ij) - u_i(s_ij)) over all messages held, in float64."""
        assert own.place is not None
        shares = own.place.among(_shares(own.place.network, own.x.device))
        total = heard_total(inbox, weights, shares, "steps")
        total -= _held(shares, weights.fresh) * inbox.own["steps"]
        for late in inbox.late:
            total -= _held(shares, late.weights) * late.own["steps"]
        return total


def _held(shares: LinkMatrix, weights: LinkMatrix) -> Float[Tensor, "a 1"]:
    """Return the total share of the neighbours that an agent holds a message from."""
    return (shares * (weights != 0)).sum(dim=1, keepdim=True)


@functools.lru_cache(maxsize=8)
def _shares(network: Network, device: torch.device) -> LinkMatrix:
    """Return c W without its diagonal."""
    smallest = end_of_spectrum(network.link_weights, network.own_weights, largest=False)
    return (network.link_weights / (1 - min(smallest, 0.0))).to(device)
