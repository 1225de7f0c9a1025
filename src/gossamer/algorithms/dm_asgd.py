"""DM-ASGD, matched differences: compare a late state with the own state of the same age.

    x_i(t+1) = sum_{j in R} w~_ij x_j(t) - eta v_i(t)
               + sum_{k in R^c} kappa(tau_ik) w_ik (x_k(t - tau_ik) - x_i(t - tau_ik))

Both states in a difference carry the same time stamp, so the common drift cancels and only the disagreement is
corrected. On a disagreement e of the clusters it reads e(t+1) = e(t) - a e(t - tau) with a = kappa times an
eigenvalue of the late links' Laplacian, which is stable exactly for a < 2 sin(pi / (4 tau + 2)). Messages
carry states only: half the traffic of the predicting family, and no compensation.
"""

import math
from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Past, Update, Weights
from gossamer.algorithms.options import option
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import add_product, mix_reliable
from gossamer.errors import UserError
from gossamer.network import Network


def stability_limit(tau: int, eigenvalue: float) -> float:
    """Return the largest stable gain: 2 sin(pi / (4 tau + 2)) / eigenvalue."""
    return 2 * math.sin(math.pi / (4 * tau + 2)) / eigenvalue if eigenvalue > 0 else math.inf


def largest_eigenvalue(network: Network) -> float:
    """Return the largest eigenvalue of the late links' Laplacian, diag(W' 1) - W'."""
    late = (network.W_late + network.W_late.T) / 2  # a link may be late in one direction only
    return float(torch.linalg.eigvalsh(torch.diag(late.sum(dim=1)) - late)[-1])


@register("dm-asgd")
@dataclass(frozen=True, kw_only=True)
class DmAsgd(Algorithm):
    """DM-ASGD: matched differences, a late state is compared with the own state of the same age."""

    gain: float | str = option(
        "auto", "kappa: auto = 1/(tau+1), critical = 1/(e (tau+1/2)), or a number used for every age"
    )

    def __post_init__(self) -> None:
        """Check the gain's name or sign."""
        if isinstance(self.gain, str) and self.gain not in ("auto", "critical"):
            raise UserError(f"unknown gain '{self.gain}'; use auto, critical or a positive number such as 0.05")
        if not isinstance(self.gain, str) and not 0 < self.gain < math.inf:
            raise UserError(f"gain must be positive and finite, got {self.gain}; use auto or a number such as 0.05")

    @property
    def past(self) -> Past:
        """The own state at the age of each message."""
        return Past.STATE

    def kappa(self, age: int) -> float:
        """Return the gain for messages of this age."""
        if self.gain == "auto":
            return 1 / (age + 1)
        if self.gain == "critical":
            return 1 / (math.e * (age + 0.5))
        return float(self.gain)

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return W~ x - eta v plus the matched differences."""
        x = self.descend(own, mix_reliable(own, inbox, weights))
        for late in inbox.late:
            assert late.own_x is not None
            kappa, then = self.kappa(late.age), late.message["x"]
            heard = late.weights.sum(dim=1)
            if late.own_x is then:  # all agents are here: one product takes the differences
                add_product(x, late.weights - torch.diag(heard), then, kappa)
            else:
                x = x + kappa * (late.weights @ then - heard[:, None] * late.own_x)
        return Update(x)

    def check(self, network: Network) -> str | None:
        """Compare the gain at the largest delay with the stability limit."""
        tau = network.delay.largest
        limit = stability_limit(tau, largest_eigenvalue(network))
        if tau == 0 or self.kappa(tau) < limit:
            return None
        return (
            f"dm-asgd's gain {self.kappa(tau):.4g} reaches the stability limit {limit:.4g} of delay {tau} on this "
            f"network and will probably diverge; use gain=critical or a number below {limit:.3g}"
        )
