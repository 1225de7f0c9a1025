"""Directed links as lists, and matrices that hold one number for each link.

A network of n agents with k links each has n k numbers to keep, not n x n. `Links` says where they belong, `LinkMatrix`
holds them and reads like the matrix [receivers, senders] that is zero elsewhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from gossamer.shapes import Bool, Float, Int, Shaped, Tensor

DENSE_SHARE = 4  # a product is dense from one weight in four on: measured on one core, float32
MOST_DENSE = 2**20  # numbers of a dense matrix on a GPU, which is not asked how many of them are zero

Number = int | float | bool


@dataclass(frozen=True, eq=False)
class Links:
    """A pattern of directed links, sorted by receiver, then by sender: the order of `mask.nonzero()`.

    Attributes:
        receivers: the row of each link.
        senders: its column.
        shape: the numbers of rows and columns.
    """

    receivers: Int[Tensor, " e"]
    senders: Int[Tensor, " e"]
    shape: tuple[int, int]

    @classmethod
    def from_mask(cls, mask: Bool[Tensor, "a n"]) -> "Links":
        """Return the links at the true entries."""
        receivers, senders = mask.nonzero(as_tuple=True)
        return cls(receivers, senders, (mask.shape[0], mask.shape[1]))

    @classmethod
    def from_pairs(cls, num_agents: int, pairs: Iterable[tuple[int, int]]) -> "Links":
        """Return both directions of each pair of agents; a pair that is named twice counts once."""
        one_way = np.fromiter((number for pair in pairs for number in pair), dtype=np.int64).reshape(-1, 2)
        both = np.concatenate([one_way, one_way[:, ::-1]])
        places = torch.from_numpy(np.unique(both[:, 0] * num_agents + both[:, 1]))
        return cls(places // num_agents, places % num_agents, (num_agents, num_agents))

    @classmethod
    def to_one(cls, num_senders: int, device: torch.device | None = None) -> "Links":
        """Return the links from all senders to one agent: the pattern of an agent that runs alone."""
        senders = torch.arange(num_senders, device=device)
        return cls(torch.zeros_like(senders), senders, (1, num_senders))

    def __len__(self) -> int:
        return len(self.receivers)

    @property
    def device(self) -> torch.device:
        """Where the lists are."""
        return self.receivers.device

    @cached_property
    def starts(self) -> Int[Tensor, " rows"]:
        """The first link of each receiver, and the number of links: the row pointer of a CSR matrix."""
        return _starts(self.receivers, self.shape[0])

    @cached_property
    def places(self) -> Int[Tensor, " e"]:
        """The place of each link in the matrix, row by row."""
        return self.receivers * self.shape[1] + self.senders

    @cached_property
    def reverse(self) -> Int[Tensor, " e"]:
        """The opposite link of each, -1 for one that goes one way only; of a square pattern."""
        return self.find(self.senders, self.receivers)

    @cached_property
    def _by_sender(self) -> tuple[Int[Tensor, " e"], Int[Tensor, " columns"]]:
        """The links in the order of their senders, and the first one of each sender."""
        order = torch.argsort(self.senders, stable=True)
        return order, _starts(self.senders[order], self.shape[1])

    @cached_property
    def mask(self) -> Bool[Tensor, "a n"]:
        """The matrix that is true at the links."""
        return self.matrix(torch.ones_like(self.receivers, dtype=torch.bool))

    @cached_property
    def _elsewhere(self) -> dict[torch.device, "Links"]:
        return {}

    def to(self, device: torch.device) -> "Links":
        """Return the same links on a device; each device has one copy."""
        if device == self.device:
            return self
        if device not in self._elsewhere:
            self._elsewhere[device] = Links(self.receivers.to(device), self.senders.to(device), self.shape)
        return self._elsewhere[device]

    def find(self, receivers: Int[Tensor, " m"], senders: Int[Tensor, " m"]) -> Int[Tensor, " m"]:
        """Return the number of the link of each pair, -1 where there is none."""
        if not len(self):
            return torch.full_like(receivers, -1)
        wanted = receivers * self.shape[1] + senders
        found = torch.searchsorted(self.places, wanted).clamp(max=len(self) - 1)
        return torch.where(self.places[found] == wanted, found, -1)

    def senders_of(self, receiver: int) -> list[int]:
        """Return the agents whose messages one agent gets."""
        first, end = self.starts[receiver : receiver + 2].tolist()
        found: list[int] = self.senders[first:end].tolist()
        return found

    def part(self, kept: Bool[Tensor, " e"]) -> "Links":
        """Return a part of the links."""
        return Links(self.receivers[kept], self.senders[kept], self.shape)

    def at(self, matrix: Shaped[Tensor, "a n"]) -> Shaped[Tensor, " e"]:
        """Return the entries of a matrix at the links."""
        return matrix[self.receivers, self.senders]

    def matrix(self, values: Shaped[Tensor, " e"], elsewhere: Number = 0) -> Shaped[Tensor, "a n"]:
        """Return the matrix with these entries at the links."""
        rows, columns = self.shape
        return values.new_full((rows * columns,), elsewhere).scatter_(0, self.places, values).view(rows, columns)

    def row_sums(self, values: Shaped[Tensor, " e"]) -> Shaped[Tensor, " a"]:
        """Return the sum over the links of each receiver; true counts as 1."""
        if values.is_floating_point():
            return _segment_sums(values, self.starts)
        return values.new_zeros(self.shape[0], dtype=torch.int64).index_add_(0, self.receivers, values.long())

    def column_sums(self, values: Shaped[Tensor, " e"]) -> Shaped[Tensor, " n"]:
        """Return the sum over the links of each sender; true counts as 1."""
        if values.is_floating_point():
            order, starts = self._by_sender
            return _segment_sums(values[order], starts)
        return values.new_zeros(self.shape[1], dtype=torch.int64).index_add_(0, self.senders, values.long())


def _starts(rows: Int[Tensor, " e"], count: int) -> Int[Tensor, " rows"]:
    return torch.searchsorted(rows, torch.arange(count + 1, device=rows.device))


def _segment_sums(values: Float[Tensor, " e"], starts: Int[Tensor, " rows"]) -> Float[Tensor, " n"]:
    """Return the sum of each segment. On a GPU index_add would add in another order in every run."""
    return torch.segment_reduce(values, "sum", offsets=starts, axis=0, unsafe=True)


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

    @cached_property
    def _dense(self) -> Shaped[Tensor, "a n"]:
        return self.links.matrix(self.values)

    def dense(self) -> Shaped[Tensor, "a n"]:
        """Return the matrix as a tensor of its own."""
        return self._dense.clone()

    def to(self, *target: Any) -> "LinkMatrix":
        """Return the matrix with another data type, on another device, or like a tensor, as `Tensor.to` does."""
        values = self.values.to(*target)
        return self if values is self.values else LinkMatrix(self.links.to(values.device), values)

    # ---- products

    def __matmul__(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, "a d"]:
        """Return the weighted sums of the senders' rows."""
        if self._prefers_dense:
            product: Tensor = self._dense @ rows
            return product
        links, values = self._nonzero
        return torch.nn.functional.embedding_bag(
            links.senders, rows, links.starts, mode="sum", per_sample_weights=values, include_last_offset=True
        )

    @cached_property
    def _prefers_dense(self) -> bool:
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

    def add_product(
        self,
        total: Float[Tensor, "a d"],
        rows: Float[Tensor, "n d"],
        factor: float = 1.0,
        diagonal: Float[Tensor, " a"] | None = None,
    ) -> None:
        """Add factor * (self + diag(diagonal)) @ rows to `total` in place."""
        if self._prefers_dense:
            total.addmm_(self._dense if diagonal is None else self.with_diagonal(diagonal), rows, alpha=factor)
            return
        if diagonal is not None:
            total.addcmul_(diagonal[:, None], rows, value=factor)
        if len(self._nonzero[0]):
            total.add_(self @ rows, alpha=factor)

    def with_diagonal(self, diagonal: Float[Tensor, " n"]) -> Float[Tensor, "n n"]:
        """Return the dense matrix with this diagonal; no agent is linked with itself."""
        whole = self.dense()
        whole.diagonal().copy_(diagonal)
        return whole

    # ---- arithmetic and comparisons, link by link

    def _at_links(self, other: Any) -> Any:
        """Return another operand's value at each link."""
        links = self.links
        if isinstance(other, LinkMatrix):
            if other.links is not links and not _same(other.links, links):
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

    def __gt__(self, other: Any) -> "LinkMatrix":
        return self._map(self.values > self._at_links(other))

    def __and__(self, other: Any) -> "LinkMatrix":
        return self._map(self.values & self._at_links(other))

    __rand__ = __and__

    def __or__(self, other: "LinkMatrix") -> "LinkMatrix":
        return self._map(self.values | self._at_links(other))

    def clamp(self, *, max: float) -> "LinkMatrix":
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


def _same(one: Links, other: Links) -> bool:
    return one.shape == other.shape and one.device == other.device and torch.equal(one.places, other.places)
