"""Matrices with one number for each link."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from gossamer.network.links import Links, Number
from gossamer.shapes import Bool, Float, Int, Shaped, Tensor

DENSE_SHARE = 4  # a product is dense from one weight in four on: measured on one core, float32
MOST_DENSE = 2**20  # numbers of a dense matrix on a GPU, which is not asked how many of them are zero


@dataclass(frozen=True, eq=False)
class LinkMatrix:
    """A matrix [a, n] with one number for each link, zero elsewhere.

    It multiplies rows (`weights @ x`), takes part in sums and products with numbers, with columns [a, 1], rows [1, n]
    and other matrices, and gives sums and comparisons. `dense()` gives an ordinary tensor.

    Attributes:
        links: where the numbers are.
        values: the number of each link.
    """

    links: Links
    values: Shaped[Tensor, " e"]

    @classmethod
    def from_dense(cls, links: Links, matrix: Shaped[Tensor, "a n"]) -> "LinkMatrix":
        """Return the entries of a matrix at the links; the others are dropped."""
        return cls(links, links.at(matrix))

    @property
    def shape(self) -> torch.Size:
        """The numbers of rows and columns."""
        return torch.Size(self.links.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The data type of the numbers."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self.values.device

    def on(self, kept: Bool[Tensor, " e"]) -> "LinkMatrix":
        """Return the matrix with zeros on all links but these."""
        return LinkMatrix(self.links, self.values * kept)

    @property
    def T(self) -> "LinkMatrix":
        """The transpose, where every link goes both ways."""
        return LinkMatrix(self.links, self.values[self.links.reverse])

    def dense(self) -> Shaped[Tensor, "a n"]:
        """Return the matrix as a tensor, which must not be changed: it is made once."""
        return self._dense

    @cached_property
    def _dense(self) -> Shaped[Tensor, "a n"]:
        return self.links.matrix(self.values)

    def to(self, *target: Any) -> "LinkMatrix":
        """Return the matrix with another data type, on another device, or like a tensor, as `Tensor.to` does."""
        values = self.values.to(*target)
        return self if values is self.values else LinkMatrix(self.links.to(values.device), values)

    # ---- products

    def __matmul__(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, "a d"]:
        """Return the weighted sums of the senders' rows."""
        if hasattr(rows, "linked"):  # rows that are computed later
            later: Tensor = rows.linked(self.links.starts, self.links.senders, self.values)
            return later
        if self.prefers_dense:
            product: Tensor = self._dense @ rows
            return product
        links, values = self._nonzero
        return torch.nn.functional.embedding_bag(
            links.senders, rows, links.starts, mode="sum", per_sample_weights=values, include_last_offset=True
        )

    def is_dense_for(self, rows: Float[Tensor, "n d"]) -> bool:
        """Whether a dense product with these rows is the faster one; rows that are computed later take a list."""
        return not hasattr(rows, "linked") and self.prefers_dense

    @cached_property
    def prefers_dense(self) -> bool:
        """Whether a dense product is the faster one."""
        size = self.links.shape[0] * self.links.shape[1]
        if DENSE_SHARE * len(self.links) < size:
            return self.values.is_cuda and size <= MOST_DENSE
        return self.values.is_cuda or DENSE_SHARE * int(torch.count_nonzero(self.values)) >= size

    @cached_property
    def _nonzero(self) -> tuple[Links, Tensor]:
        """The links and numbers without most zeros: where messages have many ages, each age has few links."""
        if self.values.is_cuda or 2 * int(torch.count_nonzero(self.values)) >= len(self.links):
            return self.links, self.values
        kept = self.values != 0
        return self.links.part(kept), self.values[kept]

    @property
    def may_count(self) -> bool:
        """Whether some number is not zero; a GPU is not asked."""
        return len(self._nonzero[0]) > 0

    def with_diagonal(self, diagonal: Float[Tensor, " n"]) -> Float[Tensor, "n n"]:
        """Return the dense matrix with this diagonal; no agent is linked with itself."""
        whole = self.dense().clone()
        whole.diagonal().copy_(diagonal)
        return whole

    # ---- arithmetic and comparisons, link by link

    def _at_links(self, other: Any) -> Any:
        """Return another operand's value at each link."""
        links = self.links
        if isinstance(other, LinkMatrix):
            if not links.same_as(other.links):
                raise ValueError("matrices of different links do not combine; take .dense() of both")
            return other.values
        if not isinstance(other, Tensor) or other.ndim == 0:
            return other
        rows, columns = other.shape if other.ndim == 2 else (1, len(other))
        if rows not in (1, links.shape[0]) or columns not in (1, links.shape[1]):
            raise ValueError(f"a matrix of shape {links.shape} does not combine with one of shape {tuple(other.shape)}")
        if rows == columns == 1:
            return other.reshape(1)
        if columns == 1:
            return other[:, 0].index_select(0, links.receivers)
        return other.reshape(-1).index_select(0, links.senders) if rows == 1 else links.at(other)

    def _map(self, values: Tensor) -> "LinkMatrix":
        return LinkMatrix(self.links, values)

    def __mul__(self, other: Any) -> "LinkMatrix":
        return self._map(self.values * self._at_links(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "LinkMatrix":
        return self._map(self.values / self._at_links(other))

    def __neg__(self) -> "LinkMatrix":
        return self._map(-self.values)

    def __add__(self, other: Any) -> Any:
        """Return the sum: a LinkMatrix with one of the same links, a dense tensor with anything else."""
        return self._map(self.values + self._at_links(other)) if isinstance(other, LinkMatrix) else self._dense + other

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._map(self.values - self._at_links(other)) if isinstance(other, LinkMatrix) else self._dense - other

    def __rsub__(self, other: Any) -> Tensor:
        difference: Tensor = other - self._dense
        return difference

    def __ne__(self, other: Any) -> "LinkMatrix":  # type: ignore[override]
        """Compare at the links; elsewhere the result is false."""
        return self._map(self.values != self._at_links(other))

    def __eq__(self, other: Any) -> Any:
        """Compare as dense matrices: where there is no link, 0 is equal."""
        return self.dense() == (other.dense() if isinstance(other, LinkMatrix) else other)

    __hash__ = object.__hash__

    def __gt__(self, other: Any) -> "LinkMatrix":
        return self._map(self.values > self._at_links(other))

    def __and__(self, other: Any) -> "LinkMatrix":
        return self._map(self.values & self._at_links(other))

    __rand__ = __and__

    def __or__(self, other: "LinkMatrix") -> "LinkMatrix":
        return self._map(self.values | self._at_links(other))

    def clamp(self, *, max: Number) -> "LinkMatrix":
        """Return the numbers, none above this one, which must not be negative."""
        return self._map(self.values.clamp(max=max))

    # ---- sums, rows and columns

    def sum(self, dim: int | None = None, *, keepdim: bool = False) -> Tensor:
        """Return the sum of all numbers, of each row (dim=1) or of each column (dim=0)."""
        if dim is None:
            return self.values.sum()
        total = self.links.row_sums(self.values) if dim in (1, -1) else self.links.column_sums(self.values)
        return total.unsqueeze(dim) if keepdim else total

    def any(self, dim: int | None = None, *, keepdim: bool = False) -> Bool[Tensor, "..."]:
        """Say whether any number is not zero: of all, of each row (dim=1) or of each column (dim=0)."""
        return self.values.any() if dim is None else self._map(self.values != 0).sum(dim, keepdim=keepdim) > 0

    def row(self, number: Int[Tensor, "1"]) -> Shaped[Tensor, "1 n"]:
        """Return one row; its number is a tensor, which a GPU is not asked for."""
        chosen = torch.where(self.links.receivers == number, self.values, 0)
        return chosen.new_zeros(self.links.shape[1]).index_add_(0, self.links.senders, chosen)[None]

    def column(self, number: int) -> Shaped[Tensor, " a"]:
        """Return one column."""
        chosen = torch.where(self.links.senders == number, self.values, 0)
        return chosen.new_zeros(self.links.shape[0]).index_add_(0, self.links.receivers, chosen)
