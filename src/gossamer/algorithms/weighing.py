"""The weights that go with what was heard: rows that sum to one, whoever is silent."""

import torch

from gossamer.algorithms.base import Weights
from gossamer.network import Network
from gossamer.shapes import Bool, Tensor


def weigh(network: Network, reliable: Bool[Tensor, "n n"], late: Bool[Tensor, "n n"]) -> Weights:
    """Return all agents' weights, in float64, when these links are current and those are late.

    A neighbour that is neither has sent nothing, or nothing for long: its weight is left out of `mass`.
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
