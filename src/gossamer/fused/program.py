"""From nodes to the tables of the compiled loop, and through it.

A sum that is used once becomes part of the sum that uses it. Every other node is a destination: rows in memory if its
values are wanted, else a scratch block. The tables are made agent by agent, without what an agent does not need:
of late messages of many ages an agent pays for those that it holds.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch

from gossamer.fused.buffers import Buffers
from gossamer.fused.expand import OPERAND_WIDTH, SYMBOL_WIDTH, expand
from gossamer.fused.kernel import NARROWS_END, NUMBER, PRODUCTS_END, QUOTIENT, ROOT, SUM, TERMS_END, compiled
from gossamer.fused.terms import Leaf, LinkTable, Node, Numbers, Quotient, Root, Sum, Term, Total, operands, resolved
from gossamer.shapes import Tensor

T = TypeVar("T")

BLOCK = 4096  # columns; scratch blocks fit into the second-level cache, and rows are read in long stretches
SMALLEST_SHARE = 2**19  # numbers that a thread is worth
SHORT = 2  # terms of a sum that is cheaper to compute again than to keep


class Wanted(NamedTuple):
    """A node whose values are wanted, and their type."""

    node: Node | Total
    dtype: torch.dtype


def compute(wanted: Sequence[Wanted], agents: int, size: int, buffers: Buffers) -> int:
    """Compute the wanted nodes in one pass; afterwards each has its leaf, or its value if it is a total.

    Return the bytes of the rows that are read and written.
    """
    program = _Program(wanted, agents, size, buffers)
    program.run()
    return program.bytes_moved


class _Program:
    """The destinations, symbols and operands of the wanted nodes; the columns of all three are those of expand.py."""

    def __init__(self, wanted: Sequence[Wanted], agents: int, size: int, buffers: Buffers) -> None:
        self.agents, self.size, self.buffers = agents, size, buffers
        self.wanted = {id(each.node): each for each in wanted}
        order = _in_order([each.node for each in wanted])
        types = {node.tensor.dtype for node in order if isinstance(node, Leaf)}
        self.double = torch.float64 in types | {each.dtype for each in wanted}
        self._inlined = _inlined(order, self.wanted.keys())
        self._destinations: list[tuple[int, ...]] = []
        self._symbols: list[tuple[int, ...]] = []
        self._factors: list[float] = []
        self._operands: list[tuple[int, ...]] = []
        self._operand_of: dict[int, int] = {}
        self._wide: dict[int, Sum] = {}  # by narrow leaf
        self._kept: list[Node | Total] = order  # nodes are known by their ids
        self._rows, self._tables = _Numbered[Numbers](), _Numbered[LinkTable]()
        self._most = self._scratches = 0
        self._computed: list[tuple[Node, Tensor]] = []
        self._totals: list[Total] = []
        for node in order:
            if not isinstance(node, Leaf) and id(node) not in self._inlined:
                self._add_destination(node)

    def _add_destination(self, node: Node | Total) -> None:
        match node:
            case Sum():
                terms, kind = self._flat(node.terms), SUM
            case Total():
                terms, kind = self._flat([Term(1.0, None, node.of)]), NUMBER
            case Quotient():
                terms, kind = [Term(1.0, None, resolved(node.over), resolved(node.under))], QUOTIENT
            case Root():
                terms, kind = [Term(1.0, None, resolved(node.of), resolved(node.of))], ROOT
            case Leaf():
                raise AssertionError("a leaf is computed already")
        symbols = [self._symbol(term) for term in terms]  # which may add destinations before this one
        begin = len(self._symbols)
        self._symbols += symbols
        self._factors += [term.factor for term in terms]
        self._most += sum(self.agents if term.links is None else len(term.links.senders) for term in terms)
        self._destinations.append((kind, *self._place(node), begin, len(self._symbols)))
        if not isinstance(node, Total):
            self._operand_of[id(node)] = len(self._operands)
            self._operands.append((0, 0, 0, 0, len(self._destinations) - 1))

    def _flat(self, terms: list[Term]) -> list[Term]:
        """Return the terms with those of inlined sums in their place."""
        flat: list[Term] = []
        for term in terms:
            a = resolved(term.a)
            if isinstance(a, Sum) and term.b is None and id(a) in self._inlined:
                inside = self._flat(a.terms)
                as_it_is = term.factor == 1.0 and term.rows is None
                flat += inside if as_it_is else [inner.times(term.factor, term.rows) for inner in inside]
            else:
                flat.append(term._replace(a=a, b=None if term.b is None else resolved(term.b)))
        return flat

    def _symbol(self, term: Term) -> tuple[int, int, int, int]:
        a, b = term.a, term.b
        if b is not None and term.links is not None and self.double:
            a, b = _multiplied(a, b), None
        first = self._operand(a if b is None else self._widened(a))
        second = -1 if b is None else self._operand(self._widened(b))
        return first, second, self._tables.number(term.links), self._rows.number(term.rows)

    def _widened(self, node: Node) -> Node:
        """Return a factor of a product in the type of the program."""
        if not isinstance(node, Leaf) or not self._is_narrow(node):
            return node
        if id(node) not in self._wide:
            self._wide[id(node)] = Sum([Term(1.0, None, node)])
            self._add_destination(self._wide[id(node)])
        return self._wide[id(node)]

    def _is_narrow(self, leaf: Leaf) -> bool:
        return self.double and leaf.tensor.dtype == torch.float32

    def _operand(self, node: Node) -> int:
        if id(node) not in self._operand_of:
            assert isinstance(node, Leaf), "operands come before what is computed from them"
            tensor, item = node.tensor, node.tensor.element_size()
            between = tensor.stride(0) * item if len(tensor) == self.agents else 0
            self._operand_of[id(node)] = len(self._operands)
            self._kept.append(node)
            self._operands.append((tensor.data_ptr(), between, item, int(self._is_narrow(node)), -1))
        return self._operand_of[id(node)]

    def _place(self, node: Node | Total) -> tuple[int, int, int, int, int]:
        if isinstance(node, Total):
            self._totals.append(node)
            return (len(self._totals) - 1) * self.agents, 0, 0, 0, 0
        wanted = self.wanted.get(id(node))
        if wanted is None:
            self._scratches += 1
            return 0, 0, 0, 0, 0
        tensor = self.buffers.empty(self.agents, self.size, wanted.dtype)
        self._computed.append((node, tensor))
        item = tensor.element_size()
        if self.double and wanted.dtype == torch.float32:
            self._scratches += 1
            return 0, 0, 0, tensor.data_ptr(), self.size * item
        return tensor.data_ptr(), self.size * item, item, 0, 0

    @property
    def bytes_moved(self) -> int:
        """The bytes of all rows that are read and written, each once."""
        read = {node.tensor.data_ptr(): node.tensor.nbytes for node in self._kept if isinstance(node, Leaf)}
        return sum(read.values()) + sum(tensor.nbytes for _, tensor in self._computed)

    def run(self) -> None:
        """Compute everything."""
        numbers = np.zeros(max(1, len(self._totals)) * self.agents)
        workers = min(torch.get_num_threads(), max(1, self.agents * self.size // SMALLEST_SHARE))
        dtype = np.float64 if self.double else np.float32
        scratch = np.empty((workers, max(1, self._scratches) * BLOCK), dtype)
        tables = self._expanded(scratch.ctypes.data, BLOCK * scratch.itemsize)
        loop, blocks = compiled(not self.double), -(-self.size // BLOCK)
        edges = [min(self.size, BLOCK * (blocks * worker // workers)) for worker in range(workers + 1)]
        sums = np.zeros((workers, len(numbers)))

        panel = BLOCK if self._shares_rows(tables) else self.size

        def part(worker: int) -> None:
            loop(*tables, sums[worker], edges[worker], edges[worker + 1], panel, BLOCK, worker * scratch[0].nbytes)

        if workers == 1:
            part(0)
        else:
            list(_threads(workers).map(part, range(workers)))
        self._hand_out(sums.sum(axis=0))

    def _shares_rows(self, tables: tuple[Any, ...]) -> bool:
        """Say whether rows are read by several agents: with messages of many ages an agent reads rows of its own."""
        tasks = tables[0]
        read = sum(int((tasks[:, end] - tasks[:, end - 1]).sum()) for end in (TERMS_END, NARROWS_END, PRODUCTS_END))
        return read > self.agents * sum(operand[4] < 0 for operand in self._operands)

    def _expanded(self, scratch: int, scratch_bytes: int) -> tuple[Any, ...]:
        tables, starts = self._tables.items, np.zeros((max(1, len(self._tables.items)), self.agents + 1), np.int64)
        offset = 0
        for number, table in enumerate(tables):
            starts[number] = table.starts + offset
            offset += len(table.senders)
        none = np.empty(0)
        return expand(  # type: ignore[no-any-return]
            self.agents,
            np.array(self._destinations, np.int64),
            np.array(self._symbols, np.int64).reshape(-1, SYMBOL_WIDTH),
            np.array(self._factors),
            np.array(self._operands, np.int64).reshape(-1, OPERAND_WIDTH),
            np.array(self._rows.items).reshape(-1, self.agents),
            starts,
            np.concatenate([none.astype(np.int64), *(table.senders for table in tables)]),
            np.concatenate([none, *(table.weights for table in tables)]),
            scratch,
            scratch_bytes,
            self._most,
        )

    def _hand_out(self, numbers: Numbers) -> None:
        for node, tensor in self._computed:
            assert not isinstance(node, Leaf)
            node.leaf = Leaf(tensor)
        for total, values in zip(self._totals, numbers.reshape(-1, self.agents), strict=False):
            wanted = np.sqrt(values) if total.is_length else values
            total.value = torch.from_numpy(wanted).to(self.wanted[id(total)].dtype)


class _Numbered(Generic[T]):
    """Different objects, numbered as they come."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self._numbers: dict[int, int] = {}

    def number(self, item: T | None) -> int:
        """Return the number of an object; -1 for None."""
        if item is None:
            return -1
        if id(item) not in self._numbers:
            self._numbers[id(item)] = len(self.items)
            self.items.append(item)
        return self._numbers[id(item)]


@cache
def _threads(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="gossamer-fused")


def _in_order(wanted: list[Node | Total]) -> list[Node | Total]:
    """Return the nodes that the wanted ones need, operands first."""
    order, done = list[Node | Total](), set[int]()
    stack: list[tuple[Node | Total, bool]] = [(node, False) for node in reversed(wanted)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif id(node) not in done:
            done.add(id(node))
            stack.append((node, True))
            stack += [(used, False) for used in operands(node)]
    return order


def _inlined(order: list[Node | Total], wanted: Collection[int]) -> set[int]:
    """Return the ids of the sums that become part of the sums that use them."""
    uses, factors = Counter[int](), set[int]()
    for node in order:
        used = [id(operand) for operand in operands(node)]
        uses.update(used)
        if isinstance(node, Sum):
            ends = [(term.a, term.b) for term in node.terms if term.b is not None]
            factors |= {id(resolved(end)) for pair in ends for end in pair if end is not None}
        elif isinstance(node, Quotient | Root):
            factors |= set(used)
    return {
        id(node)
        for node in order
        if isinstance(node, Sum)
        and id(node) not in factors
        and id(node) not in wanted
        and (uses[id(node)] == 1 or _is_short(node))
    }


def _is_short(node: Sum) -> bool:
    """Say whether a sum is cheaper to compute again than to keep."""
    return len(node.terms) <= SHORT and all(
        term.b is None and term.links is None and isinstance(resolved(term.a), Leaf) for term in node.terms
    )


def _multiplied(a: Node, b: Node) -> Leaf:
    """Return the product of two leaves, computed at once: the loop over links knows products of one type only."""
    assert isinstance(a, Leaf) and isinstance(b, Leaf)
    return Leaf(a.tensor.double() * b.tensor)
