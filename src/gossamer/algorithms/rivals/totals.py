"""Running totals: the next message makes up for one that is late or lost.

A sender sends the sum of all its pushes, S_j(t) = sum_{s <= t} y_j(s). A receiver that held S_j(s) and now holds
S_j(s') has received S_j(s') - S_j(s): each push once, even if messages were lost or overtaken in between. With constant
weights, the pushes of all neighbours are the difference of one weighted sum between two steps; an agent keeps that sum.
"""

import functools

import torch

from gossamer.algorithms.base import Inbox, Place, Weights
from gossamer.algorithms.steps import add_product
from gossamer.network import LinkMatrix, Network, PerLink
from gossamer.shapes import Float, Tensor


def push_weights(place: Place) -> tuple[Float[Tensor, "a 1"], LinkMatrix]:
    """Return the share of a push that agents keep, and the share they take of each neighbour's push, in float64.

    Columns sum to one: a sender splits its push completely. A link that can be late gets the weight of W over 1 + its
    delay, because pushes under way count for no agent: with the full weight of W an agent would push nearly all its
    mass before the first message arrives. The delay is the link's own with a delay matrix, else the typical one.
    """
    kept, shares = _push_matrix(place.network, place.share.device)
    return kept[place.agents], place.among(shares)


@functools.lru_cache(maxsize=8)
def _push_matrix(network: Network, device: torch.device) -> tuple[Tensor, LinkMatrix]:
    delay, links = network.delay, network.pattern
    steps = links.at(delay.matrix) if isinstance(delay, PerLink) else torch.tensor(delay.typical)
    shares = network.link_weights / LinkMatrix(links, torch.where(network.late_values, 1 + steps, 1))
    return (1 - shares.sum(dim=0))[:, None].to(device), shares.to(device)


def heard_total(inbox: Inbox, weights: Weights, shares: LinkMatrix, name: str) -> Float[Tensor, "a _"]:
    """Return the weighted sum of the neighbours' totals that agents hold, in float64."""
    total = (shares * (weights.fresh != 0)) @ inbox.message[name]
    for late in inbox.late:
        add_product(total, shares * (late.weights != 0), late.message[name])
    return total
