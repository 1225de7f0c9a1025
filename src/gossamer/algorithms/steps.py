"""The weights of a step, and the two ways of mixing that rules are built from.

States are large and weight matrices small, so speed depends on how often states are read and written. Arithmetic is
therefore done on the weights where possible.
"""

import dataclasses
from collections.abc import Sequence

import torch

from gossamer.algorithms.base import Inbox, Own, Weights
from gossamer.network import LinkMatrix, Network
from gossamer.shapes import Bool, Float, Tensor


def weigh(network: Network, reliable: Bool[Tensor, " e"], late: Bool[Tensor, " e"]) -> Weights:
    """Return all agents' weights, in float64, if these links are current and those are late.

    A link that is neither has delivered no message that is still kept: its weight is not part of `mass`.
    """
    own, w = network.mixing_weights
    clip_own, clip_fresh = network.clipping_weights(reliable)
    heard = reliable | late
    complete = bool((heard | ~network.in_use).all())  # then the mass is 1 without any rounding
    return Weights(
        own=own,
        fresh=w.on(reliable),
        mass=torch.ones_like(own) if complete else own + w.on(heard).sum(dim=1),
        clip_own=clip_own,
        clip_fresh=clip_fresh,
    )


def mix_heard(own: Own, inbox: Inbox, weights: Weights) -> Float[Tensor, "a d"]:
    """Return sum_{j in R} w_ij x_j + sum_{k in R^c} w_ik x_k(t - tau_ik) over all messages held."""
    return _mix_heard(own.x, inbox.fresh, inbox, weights, "x")


def mix_part(own: Float[Tensor, "a d"], inbox: Inbox, weights: Weights, name: str) -> Float[Tensor, "a d"]:
    """Return the same mean of another part of the messages; `own` is the agents' own part of this step."""
    return _mix_heard(own, inbox.message[name], inbox, weights, name)


def _mix_heard(
    own: Float[Tensor, "a d"], fresh: Float[Tensor, "n d"], inbox: Inbox, weights: Weights, name: str
) -> Float[Tensor, "a d"]:
    share, of_fresh, elsewhere = 1 / weights.mass, weights.fresh, []
    for late in inbox.late:
        if late.message[name] is fresh:  # a lone agent holds messages of all ages in the same rows: one product
            of_fresh = of_fresh + late.weights
        else:
            elsewhere.append(late)
    mixed = _mix(own, fresh, weights.own * share, scale_rows(share, of_fresh))
    for late in elsewhere:
        add_product(mixed, scale_rows(share, late.weights), late.message[name])
    return mixed


def mix_reliable(own: Own, inbox: Inbox, weights: Weights) -> Float[Tensor, "a d"]:
    """Return sum_{j in R} w~_ij x_j: late neighbours are clipped."""
    return _mix(own.x, inbox.fresh, weights.clip_own, weights.clip_fresh)


def blend(inbox: Inbox, weights: Weights, theta: Float[Tensor, " a"]) -> tuple[Inbox, Weights]:
    """Return inbox and weights with which mix_heard gives theta * mix_heard + (1 - theta) * mix_reliable.

    Both are linear in the weights, so the small weights are blended, not the large states.
    """
    heard, clipped = theta / weights.mass, 1 - theta
    late = tuple(dataclasses.replace(late, weights=scale_rows(heard, late.weights)) for late in inbox.late)
    blended = dataclasses.replace(
        weights,
        own=heard * weights.own + clipped * weights.clip_own,
        fresh=scale_rows(heard, weights.fresh) + scale_rows(clipped, weights.clip_fresh),
        mass=torch.ones_like(weights.mass),
    )
    return dataclasses.replace(inbox, late=late), blended


def weigh_late(inbox: Inbox, shares: Sequence[LinkMatrix | float]) -> tuple[Inbox, Float[Tensor, " a"]]:
    """Return theta of each agent, the mean share of its late messages, and the inbox that goes with it.

    There is a share for each age, or one for each of its links. Late weights are multiplied by share / theta, so that
    their sum stays, and `blend` with that theta gives each late message its own share of its weight.
    """
    heard = [late.weights * share for late, share in zip(inbox.late, shares, strict=True)]
    whole = torch.stack([late.weights.sum(dim=1) for late in inbox.late]).sum(dim=0)
    theta = (torch.stack([weights.sum(dim=1) for weights in heard]).sum(dim=0) / whole).nan_to_num(0.0)
    scale = torch.where(theta > 0, 1 / theta, 0.0)
    late = tuple(
        dataclasses.replace(late, weights=scale_rows(scale, weights))
        for late, weights in zip(inbox.late, heard, strict=True)
    )
    return dataclasses.replace(inbox, late=late), theta


def _mix(
    own: Float[Tensor, "a d"], fresh: Float[Tensor, "n d"], own_weights: Float[Tensor, " a"], weights: LinkMatrix
) -> Float[Tensor, "a d"]:
    if fresh is own and weights.is_dense_for(own):  # all agents are rows here, and current: one product
        return weights.with_diagonal(own_weights) @ own
    mixed = own_weights[:, None] * own
    add_product(mixed, weights, fresh)
    return mixed


def add_product(
    total: Float[Tensor, "a d"],
    weights: LinkMatrix,
    rows: Float[Tensor, "n d"],
    factor: float = 1.0,
    *,
    diagonal: Float[Tensor, " a"] | None = None,
) -> None:
    """Add factor * (weights + diag(diagonal)) @ rows to `total` in place; with a diagonal, a is n."""
    if weights.is_dense_for(rows):
        total.addmm_(weights.dense() if diagonal is None else weights.with_diagonal(diagonal), rows, alpha=factor)
        return
    if diagonal is not None:
        total.addcmul_(diagonal[:, None], rows, value=factor)
    if weights.may_count:
        total.add_(weights @ rows, alpha=factor)


def scale_rows(scale: Float[Tensor, " a"], weights: LinkMatrix) -> LinkMatrix:
    """Return each row times its number."""
    return weights * scale[:, None]


def holds_late(own: Own, inbox: Inbox) -> Bool[Tensor, " a"]:
    """Say which agents hold a late message; the others have nothing to predict."""
    found = own.x.new_zeros(own.x.shape[0]).bool()
    for late in inbox.late:
        found = found | (late.weights > 0).any(dim=1)
    return found
