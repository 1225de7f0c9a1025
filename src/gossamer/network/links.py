"""Directed links as lists: a network of n agents with k links each has n k entries to keep, not n x n."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from gossamer.shapes import Bool, Float, Int, Shaped, Tensor

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

    def same_as(self, other: "Links") -> bool:
        """Say whether these are the same links on the same device."""
        if self is other:
            return True
        return self.shape == other.shape and self.device == other.device and torch.equal(self.places, other.places)

    def components(self) -> Int[Tensor, " n"]:
        """Return the number of each agent's connected component; links count both ways.

        Every agent takes the smallest number among its neighbours, then that agent's own, so that few rounds suffice.
        """
        ends = (self.receivers, self.senders)
        number = torch.arange(self.shape[0])
        while True:
            least = number.clone()
            for one, other in (ends, ends[::-1]):
                least.scatter_reduce_(0, number[one], number[other], "amin")  # the root hears of its whole tree
            least = torch.minimum(least, least[number])
            while not torch.equal(least, least[least]):
                least = least[least]
            if torch.equal(least, number):
                found: Tensor = torch.unique(number, return_inverse=True)[1]
                return found
            number = least

    def at(self, matrix: Shaped[Tensor, "a n"]) -> Shaped[Tensor, " e"]:
        """Return the entries of a matrix at the links."""
        return matrix[self.receivers, self.senders]

    def listed(self, saved: Shaped[Tensor, "..."], like: Shaped[Tensor, "e ..."]) -> Shaped[Tensor, "..."]:
        """Return saved values as a list like this one. Older versions saved a matrix, of which the links are taken."""
        of_pairs = saved.ndim == like.ndim + 1 and saved.shape[:2] == self.shape
        return saved[self.receivers, self.senders] if of_pairs else saved

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
