"""Eigenvalues at the ends of the spectrum of a symmetric matrix on links."""

import numpy as np
import torch

from gossamer.network.link_matrix import LinkMatrix
from gossamer.shapes import Float, Tensor

MOST_EXACT = 512  # agents; of a larger matrix the Lanczos method finds one eigenvalue, without a dense copy
PRECISION = 1e-8  # of that one, relative


def end_of_spectrum(weights: LinkMatrix, diagonal: Float[Tensor, " n"] | None = None, *, largest: bool = True) -> float:
    """Return the largest or the smallest eigenvalue of a symmetric matrix with this diagonal, zero without."""
    count = weights.shape[0]
    diagonal = torch.zeros(count, dtype=torch.float64) if diagonal is None else diagonal
    if count <= MOST_EXACT:
        return float(torch.linalg.eigvalsh(weights.with_diagonal(diagonal))[-1 if largest else 0])
    from scipy.sparse import csr_array, diags_array
    from scipy.sparse.linalg import eigsh

    links = weights.links
    whole = csr_array((weights.values.numpy(), links.senders.numpy(), links.starts.numpy()), shape=links.shape)
    start = np.random.default_rng(0).random(count)  # a fixed one, so that the same matrix gives the same number
    found = eigsh(
        whole + diags_array(diagonal.numpy()),
        k=1,
        which="LA" if largest else "SA",
        tol=PRECISION,
        v0=start,
        return_eigenvectors=False,
    )
    return float(found[0])
