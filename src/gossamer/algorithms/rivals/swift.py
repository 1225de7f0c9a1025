"""SWIFT (Bornstein et al. 2023), wait-free: every H-th step averages whatever models are at hand, by influence.

    x_i(t+1) = sum_j q_ij x_j(t - tau_ij) - eta v_i(t)          when H divides t
    x_i(t+1) = x_i(t) - eta v_i(t)                              else
    q_ij = w_ij p_j / sum_l w_il p_l                            over i itself and all it has heard from

p_j is the influence of agent j, the size of its data over the mean size, which travels with its messages. Models go
out at every step, so that what is averaged is as young as the links allow; with equal influences q is W's row, and
H = 1 is D-ASGD.
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
    """SWIFT: every other step averages whatever has arrived, weighted by the senders' data."""

    every: int = option(2, "H, steps from one averaging to the next")

    def __post_init__(self) -> None:
        """Check the period."""
        if self.every < 1:
            raise UserError(f"every must be 1 step or more, got {self.every}; use for example 2")

    @property
    def message(self) -> tuple[str, ...]:
        """The model and its influence."""
        return ("x", "influence")

    @property
    def numbers(self) -> frozenset[str]:
        """An influence is one number."""
        return frozenset({"influence"})

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        """Return each agent's influence."""
        assert own.place is not None
        return {"influence": own.place.share[:, None]}

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return the mean of what was heard when it is time, else a step alone."""
        if own.t % self.every:
            return Update(self.descend(own, own.x.clone()))
        return Update(self.descend(own, mix_heard(own, *_by_influence(own, inbox, weights))))


def _by_influence(own: Own, inbox: Inbox, weights: Weights) -> tuple[Inbox, Weights]:
    """Return the inbox and weights with each weight multiplied by the sender's influence; mass makes rows one."""
    assert own.place is not None
    late = tuple(
        dataclasses.replace(group, weights=group.weights * group.message["influence"].T) for group in inbox.late
    )
    itself, fresh = weights.own * own.place.share, weights.fresh * inbox.message["influence"].T
    mass = itself + torch.stack([fresh, *(group.weights for group in late)]).sum(dim=(0, 2))
    influenced = dataclasses.replace(weights, own=itself, fresh=fresh, mass=mass)
    return dataclasses.replace(inbox, late=late), influenced
