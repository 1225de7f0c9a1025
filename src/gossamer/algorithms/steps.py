"""The two ways of mixing that the rules are built from."""

from gossamer.algorithms.base import Inbox, Own, Weights
from gossamer.shapes import Bool, Float, Tensor


def mix_heard(own: Own, inbox: Inbox, weights: Weights) -> Float[Tensor, "a d"]:
    """Return sum_{j in R} w_ij x_j + sum_{k in R^c} w_ik x_k(t - tau_ik) over all that was heard."""
    mixed = scale_rows(weights.own, own.x) + weights.fresh @ inbox.fresh
    for late in inbox.late:
        mixed = mixed + late.weights @ late.message["x"]
    return mixed / weights.mass[:, None]


def mix_reliable(own: Own, inbox: Inbox, weights: Weights) -> Float[Tensor, "a d"]:
    """Return sum_{j in R} w~_ij x_j: late neighbours are clipped."""
    return scale_rows(weights.clip_own, own.x) + weights.clip_fresh @ inbox.fresh


def scale_rows(scale: Float[Tensor, " a"], rows: Float[Tensor, "a d"]) -> Float[Tensor, "a d"]:
    """Return each row times its own number."""
    return scale[:, None] * rows


def holds_late(own: Own, inbox: Inbox) -> Bool[Tensor, " a"]:
    """Say which agents hold a late message at all; the others have nothing to predict."""
    found = own.x.new_zeros(own.x.shape[0]).bool()
    for late in inbox.late:
        found = found | (late.weights > 0).any(dim=1)
    return found
