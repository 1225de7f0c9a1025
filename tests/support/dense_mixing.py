"""The mixing weights as dense matrices, from their formulas: an oracle of the weights on lists of links."""

import networkx as nx
import torch


def metropolis(mask: torch.Tensor) -> torch.Tensor:
    degree = mask.sum(dim=1).double()
    return with_remainder(mask / (1 + torch.maximum(degree[:, None], degree[None, :])))


def uniform(mask: torch.Tensor) -> torch.Tensor:
    degree = mask.sum(dim=1).double()
    largest = torch.zeros_like(degree)
    for component in nx.connected_components(nx.from_numpy_array(mask.numpy())):
        members = torch.tensor(sorted(component))
        largest[members] = degree[members].max()
    return with_remainder(mask / (1 + largest[:, None]))


def with_remainder(off_diagonal: torch.Tensor) -> torch.Tensor:
    return off_diagonal + torch.diag(1 - off_diagonal.sum(dim=1))


def mixing(mask: torch.Tensor, kind: str, lazy: bool) -> torch.Tensor:
    w = {"metropolis": metropolis, "uniform": uniform}[kind](mask)
    return (torch.eye(len(mask), dtype=torch.float64) + w) / 2 if lazy else w


def renormalised(w: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    kept = w * (keep | torch.eye(len(w), dtype=torch.bool))
    return kept / kept.sum(dim=1, keepdim=True)
