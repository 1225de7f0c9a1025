"""Mixing matrices: the weight that agent i gives to each message, and Assumption 2 of the PC-ASGD paper about them.

`w[i, k]` is receiver i's weight of sender k. Both kinds are symmetric and doubly stochastic for a symmetric link mask,
so mixing preserves the mean of the agents. Assumption 2: (a) rows and columns sum to one; (b) Null(I - W) = span{1};
(c) I >= W > 0.
"""

from dataclasses import asdict, dataclass
from typing import Any

import networkx as nx
import torch

from gossamer.errors import unknown_name
from gossamer.shapes import Bool, Float, Tensor

# Eigenvalues of these float64 matrices are exact to about 1e-14; a path of 1000 agents has a gap of 3e-6.
TOLERANCE = 1e-9


def metropolis(links: Bool[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """Return w_ij = 1 / (1 + max(deg_i, deg_j)) on every link, and the remainder on the diagonal."""
    degree = links.sum(dim=1).double()
    return _with_remainder(links / (1 + torch.maximum(degree[:, None], degree[None, :])))


def uniform(links: Bool[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """Return w_ij = 1 / (1 + D) on every link, D the largest degree in its connected component.

    On a complete graph every weight is 1/N. On disjoint cliques the weights are uniform inside each clique.
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
    """Return the matrix of this kind on these links; lazy gives (I + W) / 2, which is positive definite."""
    if kind not in KINDS:
        raise unknown_name("mixing", kind, KINDS)
    w = KINDS[kind](links)
    if lazy:
        return (torch.eye(len(links), dtype=torch.float64) + w) / 2
    return w


def renormalised(w: Float[Tensor, "n n"], keep: Bool[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """Return w restricted to `keep` and the diagonal, with rows scaled to sum to one; columns may not sum to one."""
    kept = w * (keep | torch.eye(len(w), dtype=torch.bool))
    return kept / kept.sum(dim=1, keepdim=True)


@dataclass(frozen=True)
class AssumptionCheck:
    """Which clauses of Assumption 2 hold, the eigenvalues that the bounds use, and what a failure means.

    Attributes:
        stochastic: clause a, rows and columns sum to one.
        connected: clause b, consensus is the only fixed point.
        positive: clause c, positive definite.
        e2: second largest eigenvalue (real part).
        slem: second largest absolute value of an eigenvalue.
        words: one line per clause that fails.
    """

    stochastic: bool
    connected: bool
    positive: bool
    e2: float
    slem: float
    words: tuple[str, ...]

    @property
    def spectral_gap(self) -> float:
        """One minus the second largest absolute value: the speed of consensus by mixing alone."""
        return 1.0 - self.slem

    @property
    def holds(self) -> bool:
        """Whether all three clauses hold."""
        return self.stochastic and self.connected and self.positive

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        fields = asdict(self) | {"words": list(self.words)}
        return fields | {"spectral_gap": self.spectral_gap, "holds": self.holds}


def check_assumption_2(matrix: Float[Tensor, "n n"]) -> AssumptionCheck:
    """Check the three clauses on any square matrix, symmetric or not.

    Args:
        matrix: for example W, W_clip or W_late of a network.
    """
    matrix = matrix.double()
    one = torch.ones(len(matrix), dtype=torch.float64)
    rows, columns = matrix.sum(dim=1), matrix.sum(dim=0)
    stochastic = _close(rows, one) and _close(columns, one)
    # Singular values find the null space whether or not the matrix is symmetric.
    laplacian = torch.eye(len(matrix), dtype=torch.float64) - matrix
    nullity = int((torch.linalg.svdvals(laplacian) < TOLERANCE).sum())
    connected = nullity == 1 and _close(rows, one)
    symmetric = _close(matrix, matrix.T)
    values = torch.linalg.eigvalsh(matrix) if symmetric else torch.linalg.eigvals(matrix)
    real, size = _descending(values.real), _descending(values.abs())
    smallest, top = float(real[-1]), float(real[0])
    positive = symmetric and smallest > TOLERANCE and top <= 1 + TOLERANCE
    words = (
        *([] if stochastic else [_words_a(rows, columns)]),
        *([] if connected else [_words_b(nullity, _close(rows, one))]),
        *([] if positive else [_words_c(symmetric, smallest, top, stochastic)]),
    )
    return AssumptionCheck(
        stochastic=stochastic,
        connected=connected,
        positive=positive,
        e2=float(real[1]) if len(real) > 1 else 0.0,
        slem=float(size[1]) if len(size) > 1 else 0.0,
        words=words,
    )


def _close(first: Tensor, second: Tensor) -> bool:
    return torch.allclose(first, second, rtol=0.0, atol=TOLERANCE)


def _descending(values: Tensor) -> Tensor:
    # Rounded, and -0 becomes 0, so that no eigenvalue prints as -2e-16.
    return values.sort(descending=True).values.round(decimals=12) + 0.0


def _words_a(rows: Tensor, columns: Tensor) -> str:
    return (
        f"(a) fails: rows sum to {rows.min():.4g}..{rows.max():.4g} and columns to "
        f"{columns.min():.4g}..{columns.max():.4g} instead of 1, so mixing shifts the mean of the agents"
    )


def _words_b(nullity: int, rows_sum_to_one: bool) -> str:
    if rows_sum_to_one:
        return (
            f"(b) fails: the matrix is block diagonal, {nullity} groups of agents never meet, so e2 = 1 and "
            "every bound with 1/(1 - e2) is vacuous"
        )
    return "(b) fails: rows do not sum to 1, so agreement of all agents is not kept by this matrix alone"


def _words_c(symmetric: bool, smallest: float, top: float, stochastic: bool) -> str:
    if not symmetric:
        return "(c) fails: the matrix is not symmetric, so I >= W > 0 has no meaning for it"
    if top > 1 + TOLERANCE:
        return f"(c) fails: the largest eigenvalue is {top:.4g}, above 1, so repeated mixing grows without bound"
    remedy = (
        "; the lazy matrix (I + W)/2 mends it (lazy=True, --lazy)" if stochastic and smallest > -1 + TOLERANCE else ""
    )
    return f"(c) fails: the smallest eigenvalue is {smallest:.4g}, not above 0{remedy}"
