"""Running totals: what arrives late, or not at all, is made up for by the next message.

A sender adds up all it ever pushed, S_j(t) = sum_{s <= t} y_j(s), and sends the sum. A receiver that held S_j(s) and
now holds S_j(s') has been given S_j(s') - S_j(s), each push once, whatever was lost or overtaken in between. With
weights that stay the same, what all neighbours gave is the difference of one weighted sum between two steps, so that
an agent keeps that sum and no more.
"""

import functools

import torch

from gossamer.algorithms.base import Algorithm, Inbox, Place, Weights
from gossamer.algorithms.steps import add_product, product
from gossamer.errors import UserError
from gossamer.network import Network, PerLink
from gossamer.shapes import Float, Tensor


def push_weights(place: Place) -> tuple[Float[Tensor, "a 1"], Float[Tensor, "a n"]]:
    """Return what agents keep of a push, and the part that they take of each neighbour's, in float64.

    Columns add up to one: a sender splits what it has and nothing is lost. A link that can be late gets W's weight
    over 1 + its delay, because what is under way counts for nobody: with W's own weight an agent would have pushed
    nearly all it has before the first message arrives. The delay is the link's own where each has one, else what the
    model calls typical.
    """
    kept, shares = _push_matrix(place.network, place.share.device)
    return kept[place.agents], place.among(shares)


@functools.lru_cache(maxsize=8)
def _push_matrix(network: Network, device: torch.device) -> tuple[Tensor, Tensor]:
    delay = network.delay.matrix if isinstance(network.delay, PerLink) else network.delay.typical
    shares = network.links * network.W / torch.where(network.late_links, 1 + torch.as_tensor(delay), 1)
    return (1 - shares.sum(dim=0))[:, None].to(device), shares.to(device)


def heard_total(inbox: Inbox, weights: Weights, shares: Float[Tensor, "a n"], name: str) -> Float[Tensor, "a _"]:
    """Return the weighted sum of the totals that agents hold of their neighbours, in float64."""
    total = product(shares * (weights.fresh != 0), inbox.message[name])
    for late in inbox.late:
        add_product(total, shares * (late.weights != 0), late.message[name])
    return total


def refuse_mixed_point(rule: Algorithm) -> None:
    """Refuse gradients at the mixed point: what these rules send contains the gradient, so it comes before mixing."""
    if rule.gradient_at == "mixed":
        raise UserError(
            f"gradient_at=mixed does not go with {rule.name}, whose messages contain the gradient, which is thus "
            "taken before mixing; use gradient_at=own"
        )
