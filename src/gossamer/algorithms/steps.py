"""The weights of a step, and the two ways of mixing that rules are built from.

States are large and weight matrices small, so speed depends on how often states are read and written. Arithmetic is
therefore done on the weights where possible.
"""

import dataclasses
import warnings
from collections.abc import Sequence

import torch

from gossamer.algorithms.base import Inbox, Own, Weights
from gossamer.network import Network
from gossamer.shapes import Bool, Float, Tensor

SPARSE_FROM = 32 * 32  # weights; a dense product of a smaller matrix is as fast
SPARSE_SHARE = 4  # a matrix is sparse if fewer than one in four weights is not zero


def weigh(network: Network, reliable: Bool[Tensor, "n n"], late: Bool[Tensor, "n n"]) -> Weights:
    """Return all agents' weights, in float64, if these links are current and those are late.

    A link that is neither has delivered no message that is still kept: its weight is not part of `mass`.
    """
    w, clip = network.W, network.clip_matrix(reliable)
    own, clip_own = w.diagonal(), clip.diagonal()
    heard = reliable | late
    complete = bool((heard | ~network.links).all())  # then the mass is 1 without any rounding
    return Weights(
        own=own,
        fresh=w * reliable,
        mass=torch.ones_like(own) if complete else own + (w * heard).sum(dim=1),
        clip_own=clip_own,
        clip_fresh=clip - torch.diag(clip_own),
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


def weigh_late(inbox: Inbox, shares: Sequence[Float[Tensor, "a n"]]) -> tuple[Inbox, Float[Tensor, " a"]]:
    """Return theta of each agent, the mean share of its late messages, and the inbox that goes with it.

    Shares are of each age, agent and sender. Late weights are multiplied by share / theta, so that their sum stays, and
    `blend` with that theta gives each late message its own share of its weight.
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
    own: Float[Tensor, "a d"],
    fresh: Float[Tensor, "n d"],
    own_weights: Float[Tensor, " a"],
    weights: Float[Tensor, "a n"],
) -> Float[Tensor, "a d"]:
    if fresh is own and not _is_sparse(weights):  # all agents are rows here, and current: one product
        return (weights + torch.diag(own_weights)) @ own
    mixed = scale_rows(own_weights, own)
    add_product(mixed, weights, fresh)
    return mixed


def product(weights: Float[Tensor, "a n"], rows: Float[Tensor, "n d"]) -> Float[Tensor, "a d"]:
    """Return weights @ rows; a large sparse matrix on a CPU is multiplied as such."""
    return _sparse(weights) @ rows if _is_sparse(weights) else weights @ rows


def add_product(
    total: Float[Tensor, "a d"], weights: Float[Tensor, "a n"], rows: Float[Tensor, "n d"], factor: float = 1.0
) -> None:
    """Add factor * weights @ rows to `total` in place."""
    if not _is_sparse(weights):
        total.addmm_(weights, rows, alpha=factor)
    elif bool(weights.any()):
        total.addmm_(_sparse(weights), rows, alpha=factor)


def _is_sparse(weights: Float[Tensor, "a n"]) -> bool:
    """Say whether most weights of a large matrix are zero. A GPU is not asked: counting would wait for it."""
    enough = weights.numel() >= SPARSE_FROM and weights.device.type == "cpu"
    return enough and SPARSE_SHARE * int(torch.count_nonzero(weights)) < weights.numel()


def _sparse(weights: Float[Tensor, "a n"]) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns once that sparse CSR is beta
        return weights.to_sparse_csr()


def scale_rows(scale: Float[Tensor, " a"], rows: Float[Tensor, "a n"]) -> Float[Tensor, "a n"]:
    """Return each row times its number."""
    return scale[:, None] * rows


def holds_late(own: Own, inbox: Inbox) -> Bool[Tensor, " a"]:
    """Say which agents hold a late message; the others have nothing to predict."""
    found = own.x.new_zeros(own.x.shape[0]).bool()
    for late in inbox.late:
        found = found | (late.weights > 0).any(dim=1)
    return found
