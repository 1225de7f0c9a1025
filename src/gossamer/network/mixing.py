"""Mixing matrices: the weight that agent i gives to each message, and Assumption 2 of the PC-ASGD paper about them.

`w[i, k]` is receiver i's weight of sender k. Both kinds are symmetric and doubly stochastic on links that go both ways:
mixing preserves the mean of the agents. Assumption 2: (a) rows and columns sum to one; (b) Null(I - W) = span{1};
(c) I >= W > 0.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch

from gossamer.errors import unknown_name
from gossamer.network.link_matrix import LinkMatrix
from gossamer.network.links import Links
from gossamer.shapes import Bool, Float, Tensor

# Eigenvalues of these float64 matrices are exact to about 1e-14; a path of 1000 agents has a gap of 3e-6.
TOLERANCE = 1e-9


Weighed = tuple[Float[Tensor, " n"], LinkMatrix]  # each agent's weight of itself, and those of the links


def metropolis(links: Links, used: Bool[Tensor, " e"]) -> Float[Tensor, " e"]:
    """Return w_ij = 1 / (1 + max(deg_i, deg_j)) on every link that is used."""
    degree = links.row_sums(used.double())
    return used / (1 + torch.maximum(degree[links.receivers], degree[links.senders]))


def uniform(links: Links, used: Bool[Tensor, " e"]) -> Float[Tensor, " e"]:
    """Return w_ij = 1 / (1 + D) on every link that is used, D the largest degree in its connected component.

    On a complete graph every weight is 1/N. On disjoint cliques the weights are uniform inside each clique.
    """
    degree, component = links.row_sums(used.double()), links.part(used).components()
    largest = torch.zeros_like(degree).scatter_reduce_(0, component, degree, "amax")
    return used / (1 + largest[component[links.receivers]])


KINDS = {"metropolis": metropolis, "uniform": uniform}


def mixing_weights(links: Links, used: Bool[Tensor, " e"], kind: str, lazy: bool) -> Weighed:
    """Return the weights of this kind on the used links, which go both ways; lazy gives (I + W) / 2.

    An agent keeps what its links leave. The lazy matrix is positive definite.
    """
    if kind not in KINDS:
        raise unknown_name("mixing", kind, KINDS)
    weights = KINDS[kind](links, used) * (0.5 if lazy else 1.0)
    return 1 - links.row_sums(weights), LinkMatrix(links, weights)


def mixing_matrix(links: Bool[Tensor, "n n"], kind: str, lazy: bool) -> Float[Tensor, "n n"]:
    """Return the same weights as a dense matrix, for a mask of links."""
    pattern = Links.from_mask(links)
    own, weights = mixing_weights(pattern, torch.ones(len(pattern), dtype=torch.bool), kind, lazy)
    return weights.with_diagonal(own)


def renormalised(own: Float[Tensor, " n"], weights: LinkMatrix, keep: Bool[Tensor, " e"]) -> Weighed:
    """Return the weights of the kept links and of the agents, scaled to sum to one; columns may not sum to one."""
    kept = weights.on(keep)
    total = own + kept.sum(dim=1)
    return own / total, kept / total[:, None]


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
