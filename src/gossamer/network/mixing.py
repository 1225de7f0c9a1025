"""Mixing matrices: how much weight agent i gives to what it hears from agent k.

`w[i, k]` is the weight of the receiver's row i on the sender's column k. Both kinds are symmetric and
doubly stochastic for a symmetric link mask, so that mixing preserves the mean of the agents.
"""

import networkx as nx
import torch

from gossamer.errors import unknown_name
from gossamer.shapes import Bool, Float, Tensor


def metropolis(links: Bool[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """Return w_ij = 1 / (1 + max(deg_i, deg_j)) on every link, and the remainder on the diagonal."""
    degree = links.sum(dim=1).double()
    return _with_remainder(links / (1 + torch.maximum(degree[:, None], degree[None, :])))


def uniform(links: Bool[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """Return w_ij = 1 / (1 + D) on every link, D the largest degree in its connected component.

    On a complete graph this is 1/N everywhere, and on disjoint cliques it is uniform inside each clique.
    """
    degree = links.sum(dim=1).double()
    largest = torch.zeros_like(degree)
    for component in nx.connected_components(nx.from_numpy_array(links.numpy())):
        members = torch.tensor(sorted(component))
        largest[members] = degree[members].max()
    return _with_remainder(links / (1 + largest[:, None]))


def _with_remainder(off_diagonal: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    return off_diagonal + torch.diag(1 - off_diagonal.sum(dim=1))


KINDS = {"metropolis": metropolis, "uniform": uniform}


def mixing_matrix(links: Bool[Tensor, "n n"], kind: str, lazy: bool) -> Float[Tensor, "n n"]:
    """Return the matrix of this kind on these links; lazy gives the positive (I + W) / 2."""
    if kind not in KINDS:
        raise unknown_name("mixing", kind, KINDS)
    w = KINDS[kind](links)
    if lazy:
        return (torch.eye(len(links), dtype=torch.float64) + w) / 2
    return w


def renormalised(w: Float[Tensor, "n n"], keep: Bool[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """Return the rows of w restricted to `keep` and to the diagonal, each scaled to sum to one.

    The rows are stochastic; the columns in general are not.
    """
    kept = w * (keep | torch.eye(len(w), dtype=torch.bool))
    return kept / kept.sum(dim=1, keepdim=True)
