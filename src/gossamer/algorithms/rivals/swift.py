"""SWIFT (Bornstein et al. 2023), wait-free: every H steps an agent averages the models it holds, by influence.

    x_i(t+1) = sum_j q_ij x_j(t - tau_ij) - eta v_i(t)          if H divides t
    x_i(t+1) = x_i(t) - eta v_i(t)                              else
    q_ij = w_ij p_j / sum_l w_il p_l                            over i itself and all neighbours heard from

p_j is the influence of agent j, the size of its data over the mean size; messages include it. Agents send at every
step, so the averaged models are as new as the links allow. With equal influences q is the row of W; H = 1 is D-ASGD.
"""

import dataclasses
from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Update, Weights
from gossamer.algorithms.options import option
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import mix_heard
from gossamer.errors import UserError
from gossamer.shapes import Float, Tensor


@register("swift")
@dataclass(frozen=True, kw_only=True)
class Swift(Algorithm):
    """SWIFT: every H steps averages the models held, weighted by the senders' data."""

    origin = "adapted"

    every: int = option(2, "H, steps between two averagings")

    def __post_init__(self) -> None:
        if self.every < 1:
            raise UserError(f"every must be 1 step or more, got {self.every}; use for example 2")

    @property
    def message(self) -> tuple[str, ...]:
        return ("x", "influence")

    @property
    def numbers(self) -> frozenset[str]:
        return frozenset({"influence"})

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        assert own.place is not None
        return {"influence": own.place.share[:, None]}

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return the mean of all messages held every H steps, else a local step."""
        if own.t % self.every:
            return Update(self.descend(own, own.x.clone()))
        return Update(self.descend(own, mix_heard(own, *_by_influence(own, inbox, weights))))


def _by_influence(own: Own, inbox: Inbox, weights: Weights) -> tuple[Inbox, Weights]:
    """Return inbox and weights, with each weight times the sender's influence; mass normalises the rows."""
    assert own.place is not None
    late = tuple(
        dataclasses.replace(group, weights=group.weights * group.message["influence"].T) for group in inbox.late
    )
    itself, fresh = weights.own * own.place.share, weights.fresh * inbox.message["influence"].T
    mass = itself + torch.stack([fresh, *(group.weights for group in late)]).sum(dim=(0, 2))
    influenced = dataclasses.replace(weights, own=itself, fresh=fresh, mass=mass)
    return dataclasses.replace(inbox, late=late), influenced
