"""The two ways of mixing that the rules are built from.

A state is large and a matrix of weights small, so that time goes by how often states are read and written: what can
be done to the weights is done there.
"""

import torch

from gossamer.algorithms.base import Inbox, Own, Weights
from gossamer.shapes import Bool, Float, Tensor


def mix_heard(own: Own, inbox: Inbox, weights: Weights) -> Float[Tensor, "a d"]:
    """Return sum_{j in R} w_ij x_j + sum_{k in R^c} w_ik x_k(t - tau_ik) over all that was heard."""
    share = 1 / weights.mass
    mixed = _mix(own, inbox, weights.own * share, scale_rows(share, weights.fresh))
    for late in inbox.late:
        mixed.addmm_(scale_rows(share, late.weights), late.message["x"])
    return mixed


def mix_reliable(own: Own, inbox: Inbox, weights: Weights) -> Float[Tensor, "a d"]:
    """Return sum_{j in R} w~_ij x_j: late neighbours are clipped."""
    return _mix(own, inbox, weights.clip_own, weights.clip_fresh)


def _mix(
    own: Own, inbox: Inbox, own_weights: Float[Tensor, " a"], weights: Float[Tensor, "a n"]
) -> Float[Tensor, "a d"]:
    if inbox.fresh is own.x:  # all agents are here, and current: one product does
        return (weights + torch.diag(own_weights)) @ own.x
    return scale_rows(own_weights, own.x).addmm_(weights, inbox.fresh)


def scale_rows(scale: Float[Tensor, " a"], rows: Float[Tensor, "a n"]) -> Float[Tensor, "a n"]:
    """Return each row times its own number."""
    return scale[:, None] * rows


def holds_late(own: Own, inbox: Inbox) -> Bool[Tensor, " a"]:
    """Say which agents hold a late message at all; the others have nothing to predict."""
    found = own.x.new_zeros(own.x.shape[0]).bool()
    for late in inbox.late:
        found = found | (late.weights > 0).any(dim=1)
    return found
