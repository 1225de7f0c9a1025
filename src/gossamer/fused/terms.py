"""What a rule computes, as sums of terms over rows in memory: built while the rule runs, computed later in one pass."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from gossamer.shapes import Tensor

Numbers: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.int64]


class LinkTable(NamedTuple):
    """Weights of links, by receiver: agent i has the links starts[i] to starts[i + 1]."""

    starts: Indices
    senders: Indices
    weights: Numbers


@dataclass(eq=False)
class Leaf:
    """Rows that are in memory: one for each agent, or one that all share."""

    tensor: Tensor


@dataclass(eq=False)
class Sum:
    """A sum of terms."""

    terms: "list[Term]"
    leaf: Leaf | None = None  # once it is computed


@dataclass(eq=False)
class Quotient:
    """One node over another."""

    over: "Node"
    under: "Node"
    leaf: Leaf | None = None


@dataclass(eq=False)
class Root:
    """The square root of a node."""

    of: "Node"
    leaf: Leaf | None = None


@dataclass(eq=False)
class Total:
    """One number for each agent: a sum over the columns, and its square root if it is a length."""

    of: Sum
    is_length: bool = False
    value: Tensor | None = field(default=None, repr=False)


Node: TypeAlias = Leaf | Sum | Quotient | Root


class Term(NamedTuple):
    """factor * rows_i * a, times b if there is one; over an agent's links if there are links.

    With links, a and b are leaves and stand for the senders' rows.
    """

    factor: float
    rows: Numbers | None  # one number for each agent
    a: Node
    b: Node | None = None
    links: LinkTable | None = None

    def times(self, factor: float, rows: Numbers | None) -> "Term":
        """Return the term times a number, and times a number for each agent."""
        both = rows if self.rows is None else self.rows if rows is None else self.rows * rows
        return self._replace(factor=self.factor * factor, rows=both)


def resolved(node: Node) -> Node:
    """Return the leaf of a node that is computed, else the node."""
    return node if isinstance(node, Leaf) or node.leaf is None else node.leaf


def scaled(node: Node, factor: float = 1.0, rows: Numbers | None = None) -> Sum:
    """Return a node times a number, and times a number for each agent."""
    node = resolved(node)
    if isinstance(node, Sum) and len(node.terms) == 1:
        return Sum([node.terms[0].times(factor, rows)])
    return Sum([Term(factor, rows, node)])


def plus(node: Node, more: Node, factor: float = 1.0, rows: Numbers | None = None) -> Sum:
    """Return node + factor * more.

    A sum of several terms is referred to, so that it is computed once if others use it too.
    """
    return Sum([*scaled(node).terms, *scaled(more, factor, rows).terms])


def product(one: Node, other: Node, factor: float = 1.0, rows: Numbers | None = None) -> Sum:
    """Return one * other, elementwise."""
    (one, first), (other, second) = _single(one), _single(other)
    return Sum([Term(factor, rows, one, other).times(*first).times(*second)])


def _single(node: Node) -> tuple[Node, tuple[float, Numbers | None]]:
    """Split a scaled node into the node and its factors."""
    node = resolved(node)
    if isinstance(node, Sum) and len(node.terms) == 1:
        (term,) = node.terms
        if term.b is None and term.links is None:
            return resolved(term.a), (term.factor, term.rows)
    return node, (1.0, None)


def over_links(table: LinkTable, node: Node) -> Sum | None:
    """Return the weighted sum of the senders' rows of a node that is a leaf, or a product of two; None for others."""
    node = resolved(node)
    if isinstance(node, Leaf):
        return Sum([Term(1.0, None, node, None, table)])
    if isinstance(node, Sum) and len(node.terms) == 1:
        (term,) = node.terms
        a, b = resolved(term.a), None if term.b is None else resolved(term.b)
        if isinstance(a, Leaf) and (b is None or isinstance(b, Leaf)) and term.links is None and term.rows is None:
            return Sum([Term(term.factor, None, a, b, table)])
    return None


def operands(node: Node | Total) -> Iterator[Node]:
    """Return the nodes that a node is computed from."""
    match node:
        case Sum():
            for term in node.terms:
                yield resolved(term.a)
                if term.b is not None:
                    yield resolved(term.b)
        case Quotient():
            yield from (resolved(node.over), resolved(node.under))
        case Root():
            yield resolved(node.of)
        case Total():
            yield resolved(node.of)
        case Leaf():
            pass
