"""Matched differences: a late message minus the agent's own message of the same step.

    [M m]_i = sum_{j in R} w~_ij m_j(t) + sum_{k in R^c} kappa(tau_ik) w_ik (m_k(t - tau_ik) - m_i(t - tau_ik))

Both sides of a difference are of the same step, so the common drift cancels and only the disagreement is corrected. A
disagreement e of the clusters obeys e(t+1) = e(t) - a e(t - tau), where a is kappa times an eigenvalue of the late
links' Laplacian. This is stable exactly for a < 2 sin(pi / (4 tau + 2)).

Prior art: with kappa = 1, applied once per message and not at every step, this is the merge of CoCoD-SGD (Shen et al.
2019), the distance term of DC-S3GD (Rigazzi 2019), hivemind's `delta_rule_averaging`, and, on a sparse set of
coordinates, the delay-corrected merge of LOSCAR-SGD (Maziane et al. 2026). Ours are the gain by age on any graph, its
stability limit, and the damped gain under a local momentum.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from gossamer.algorithms.base import Algorithm, Inbox, Own, Past, Weights
from gossamer.algorithms.options import option
from gossamer.algorithms.steps import add_product
from gossamer.errors import UserError
from gossamer.network import Network, end_of_spectrum
from gossamer.shapes import Float, Tensor

# Gain by age of the message.
GAINS: dict[str, Callable[[int], float]] = {
    "undamped": lambda age: 1 / (age + 1),
    "damped": lambda age: 1 / (2 * (age + 1)),
    "critical": lambda age: 1 / (math.e * (age + 0.5)),
}
AUTO = "auto"


def stability_limit(tau: int, eigenvalue: float) -> float:
    """Return the largest stable gain: 2 sin(pi / (4 tau + 2)) / eigenvalue."""
    return 2 * math.sin(math.pi / (4 * tau + 2)) / eigenvalue if eigenvalue > 0 else math.inf


def largest_eigenvalue(network: Network) -> float:
    """Return the largest eigenvalue of the late links' Laplacian, diag(W' 1) - W'."""
    late = network.link_weights.on(network.late_values)
    late = (late + late.T) * 0.5  # a link may be late in one direction only
    return end_of_spectrum(-late, late.sum(dim=1))


@dataclass(frozen=True, kw_only=True)
class Matched(Algorithm):
    """A rule that mixes by matched differences."""

    gain: float | str = option(
        AUTO,
        "kappa: undamped = 1/(tau+1), damped = half of it, auto = damped with a local momentum, else undamped, "
        "critical = 1/(e (tau+1/2)), or a number for every age",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.gain, str) and self.gain not in (AUTO, *GAINS):
            names = ", ".join((AUTO, *GAINS))
            raise UserError(f"unknown gain '{self.gain}'; use {names} or a positive number such as 0.05")
        if not isinstance(self.gain, str) and not 0 < self.gain < math.inf:
            raise UserError(f"gain must be positive and finite, got {self.gain}; use auto or a number such as 0.05")

    @property
    def past(self) -> Past:
        """Needs the agent's own message of the same age as each late message."""
        return Past.STATE

    def kappa(self, age: int, momentum: float = 0.0) -> float:
        """Return the gain for messages of this age, with this local momentum."""
        if not isinstance(self.gain, str):
            return float(self.gain)
        # A large gain feeds the oscillations of a momentum in curved directions (docs/algorithms/dm-asgd.md).
        name = ("damped" if momentum else "undamped") if self.gain == AUTO else self.gain
        return GAINS[name](age)

    def mix(self, own: Own, inbox: Inbox, weights: Weights, name: str) -> Float[Tensor, "a d"]:
        """Return [M m]_i for one part of the messages made by `send`."""
        mixed = weights.clip_own[:, None] * own.sent[name]
        add_product(mixed, weights.clip_fresh, inbox.message[name])
        self.add_differences(mixed, own, inbox, name)
        return mixed

    def add_differences(self, total: Float[Tensor, "a d"], own: Own, inbox: Inbox, name: str) -> None:
        """Add the matched differences of one part of the messages to `total` in place."""
        for late in inbox.late:
            kappa, then, own_then = self.kappa(late.age, own.momentum), late.message[name], late.own[name]
            heard = late.weights.sum(dim=1)
            if own_then is then:  # all agents are rows of this tensor: one product takes the differences
                add_product(total, late.weights, then, kappa, diagonal=-heard)
            else:
                total.add_(late.weights @ then - heard[:, None] * own_then, alpha=kappa)

    def check(self, network: Network, *, momentum: float = 0.0) -> str | None:
        """Compare the gain at the largest delay with the stability limit."""
        tau = network.delay.largest
        limit = stability_limit(tau, largest_eigenvalue(network))
        kappa = self.kappa(tau, momentum)
        if tau == 0 or kappa < limit:
            return None
        return (
            f"{self.name}'s gain {kappa:.4g} reaches the stability limit {limit:.4g} of delay {tau} on this "
            f"network and will probably diverge; use gain=critical or a number below {limit:.3g}"
        )
