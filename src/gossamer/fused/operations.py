"""The operations that are recorded: sums, products, scales, weighted sums over links, and sums over the columns."""

import numbers
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch

from gossamer.fused.deferred import OPERATIONS, Deferred, Recorder
from gossamer.fused.terms import LinkTable, Node, Numbers, Quotient, Root, Sum, Total, plus, product, scaled
from gossamer.shapes import Tensor

__all__ = ["Recorder"]

Operand: TypeAlias = Node | Numbers | float  # rows, a number for each agent, or one number


def _records(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a handler for functions of torch and methods of Tensor; it declines with NotImplemented."""

    def register(handler: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            for place in (torch, Tensor, torch.linalg):
                if (function := getattr(place, name, None)) is not None:
                    OPERATIONS[function] = handler
        return handler

    return register


def _changes(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the forms that change their first argument."""

    def register(handler: Callable[..., Any]) -> Callable[..., Any]:
        def change(rows: Any, *args: Any, **kwargs: Any) -> Any:
            if not _is_rows(rows) or rows.viewed:
                return NotImplemented
            result = handler(rows, *args, **kwargs)
            if result is not NotImplemented:
                rows.node = result.node
                return rows
            return NotImplemented

        _records(*names)(change)
        return handler

    return register


def _read(value: Any, agents: int) -> Operand | None:
    """Return an operand, or None for one that is not recorded."""
    if isinstance(value, Deferred):
        return None if isinstance(value.node, Total) else value.node
    if isinstance(value, numbers.Real):
        return float(value)
    if not isinstance(value, Tensor) or value.is_cuda or value.layout != torch.strided:
        return None
    if value.numel() == 1 and (value.ndim == 0 or agents != 1):
        return float(value)
    if tuple(value.shape) == (agents, 1):
        return value[:, 0].double().numpy().copy()
    return None


def _is_rows(value: Any) -> bool:
    return isinstance(value, Deferred) and not isinstance(value.node, Total)


def _rows_of(*values: Any) -> Deferred:
    return next(value for value in values if isinstance(value, Deferred))


def _made(node: Node, *values: Any) -> Deferred:
    """Return a stand-in of the type that torch would give."""
    rows = _rows_of(*values)
    dtype = rows.dtype
    for value in values:
        if isinstance(value, Tensor) and value.ndim:
            dtype = torch.promote_types(dtype, value.dtype)
    return rows.recorder.made(node, dtype)


def _both(a: Any, b: Any) -> tuple[Operand, Operand] | None:
    agents = _rows_of(a, b).recorder.agents
    one, other = _read(a, agents), _read(b, agents)
    return None if one is None or other is None else (one, other)


def _is_node(operand: Operand) -> bool:
    return not isinstance(operand, float | np.ndarray)


def _as_node(operand: Operand, like: Deferred) -> Node:
    """Return numbers as rows of equal columns."""
    if isinstance(operand, float | np.ndarray):
        return _times(like.recorder.ones(like.dtype), operand)
    return operand


def _times(node: Node, by: Operand, factor: float = 1.0) -> Sum:
    if isinstance(by, float):
        return scaled(node, factor * by)
    return scaled(node, factor, by) if isinstance(by, np.ndarray) else product(node, by, factor)


@_changes("add_", "__iadd__")
@_records("add", "__add__", "__radd__")
def _add(a: Any, b: Any, *, alpha: float | int = 1) -> Any:
    if (both := _both(a, b)) is None:
        return NotImplemented
    like = _rows_of(a, b)
    return _made(plus(_as_node(both[0], like), _as_node(both[1], like), float(alpha)), a, b)


@_changes("sub_", "__isub__")
@_records("sub", "__sub__")
def _subtract(a: Any, b: Any, *, alpha: float | int = 1) -> Any:
    return _add(a, b, alpha=-alpha)


@_records("rsub", "__rsub__")
def _subtract_from(a: Any, b: Any) -> Any:
    return _add(b, a, alpha=-1)


@_changes("mul_", "__imul__")
@_records("mul", "__mul__", "__rmul__")
def _multiply(a: Any, b: Any) -> Any:
    if (both := _both(a, b)) is None:
        return NotImplemented
    one, other = both if _is_node(both[0]) else (both[1], both[0])
    return _made(_times(one, other), a, b)  # type: ignore[arg-type]


@_changes("div_", "__itruediv__")
@_records("div", "__truediv__")
def _divide(a: Any, b: Any) -> Any:
    if (both := _both(a, b)) is None:
        return NotImplemented
    over, under = both
    if isinstance(under, float | np.ndarray):
        with np.errstate(divide="ignore", invalid="ignore"):
            inverse = 1 / np.float64(under) if isinstance(under, float) else 1 / under
        return _made(_times(over, inverse if isinstance(inverse, np.ndarray) else float(inverse)), a, b)  # type: ignore[arg-type]
    return _made(Quotient(_as_node(over, _rows_of(a, b)), under), a, b)


@_records("__rtruediv__")
def _divide_into(a: Any, b: Any) -> Any:
    return _divide(b, a)


@_changes("addcmul_")
@_records("addcmul")
def _add_product(total: Any, one: Any, other: Any, *, value: float | int = 1) -> Any:
    rows = _rows_of(total, one, other)
    parts = [_read(each, rows.recorder.agents) for each in (total, one, other)]
    if any(part is None for part in parts) or not _is_node(parts[0]):  # type: ignore[arg-type]
        return NotImplemented
    first, second = parts[1:] if _is_node(parts[1]) else (parts[2], parts[1])  # type: ignore[arg-type]
    if not _is_node(first):  # type: ignore[arg-type]
        return NotImplemented
    return _made(plus(parts[0], _times(first, second), float(value)), total, one, other)  # type: ignore[arg-type]


@_changes("lerp_")
@_records("lerp")
def _between(start: Any, end: Any, weight: Any) -> Any:
    agents = _rows_of(start, end, weight).recorder.agents
    a, b, share = _read(start, agents), _read(end, agents), _read(weight, agents)
    if not isinstance(share, float | np.ndarray) or a is None or b is None or not (_is_node(a) and _is_node(b)):
        return NotImplemented
    rest = 1.0 - share
    return _made(plus(_times(a, rest), _times(b, share)), start, end)  # type: ignore[arg-type]


@_records("where")
def _choose(mask: Any, one: Any, other: Any) -> Any:
    if not isinstance(mask, Tensor) or isinstance(mask, Deferred) or (both := _both(one, other)) is None:
        return NotImplemented
    like = _rows_of(one, other)
    if tuple(mask.shape) != (like.recorder.agents, 1):
        return NotImplemented
    chosen = mask[:, 0].double().numpy().copy()
    taken, left = (_as_node(each, like) for each in both)
    return _made(plus(_times(taken, chosen), _times(left, 1.0 - chosen)), one, other)


def _table(weights: Any, rows: Deferred) -> LinkTable | None:
    """Return a matrix of weights as a table of links."""
    square = (rows.recorder.agents, rows.recorder.agents)
    if isinstance(weights, Deferred) or not isinstance(weights, Tensor) or tuple(weights.shape) != square:
        return None
    if weights.layout == torch.sparse_csr:
        starts, senders, values = weights.crow_indices(), weights.col_indices(), weights.values()
        return LinkTable(starts.numpy(), senders.numpy(), values.double().numpy())
    matrix = weights.double().numpy()
    receivers, senders_of = np.nonzero(matrix)
    return LinkTable(np.searchsorted(receivers, np.arange(len(matrix) + 1)), senders_of, matrix[receivers, senders_of])


@_records("mm", "matmul", "__matmul__")
def _over_links(weights: Any, rows: Any) -> Any:
    if not _is_rows(rows) or (table := _table(weights, rows)) is None:
        return NotImplemented
    return rows.recorder.over_links(table, rows)


@_changes("addmm_")
def _add_over_links(total: Any, weights: Any, rows: Any, *, beta: float = 1, alpha: float | int = 1) -> Any:
    summed = _over_links(weights, rows)
    return NotImplemented if summed is NotImplemented or beta != 1 else _add(total, summed, alpha=alpha)


@_records("neg", "__neg__")
def _negate(a: Any) -> Any:
    return _multiply(a, -1.0)


@_records("square")
def _square(a: Any) -> Any:
    return _multiply(a, a)


@_records("sqrt")
def _root(a: Any) -> Any:
    return NotImplemented if not _is_rows(a) else _made(Root(a.node), a)


@_records("clone", "detach", "contiguous")
def _same(a: Any) -> Any:
    return NotImplemented if not _is_rows(a) else _made(scaled(a.node), a)


@_records("zeros_like")
def _nothing(a: Any) -> Any:
    return NotImplemented if not _is_rows(a) else _made(Sum([]), a)


@_records("to", "type")
def _converted(a: Any, dtype: Any) -> Any:
    dtype = dtype.dtype if isinstance(dtype, Tensor) else dtype
    if dtype not in (torch.float32, torch.float64) or not _is_rows(a):
        return NotImplemented
    return a if dtype == a.dtype else a.recorder.made(scaled(a.node), dtype)


@_records("double")
def _double(a: Any) -> Any:
    return _converted(a, torch.float64)


@_records("sum")
def _sum(a: Any, dim: Any = None, *, keepdim: bool = False) -> Any:
    if dim not in (1, -1) or not _is_rows(a):
        return NotImplemented
    total = a.recorder.made(Total(scaled(a.node)), a.dtype)
    return total.values()[:, None] if keepdim else total


@_records("vector_norm")
def _length(a: Any, *, dim: Any = None, keepdim: bool = False) -> Any:
    if dim not in (1, -1) or not _is_rows(a):
        return NotImplemented
    total = a.recorder.made(Total(product(a.node, a.node), is_length=True), a.dtype)
    return total.values()[:, None] if keepdim else total


for _name in ("new_zeros", "new_ones", "new_full", "new_empty", "new_tensor"):

    def _new_named(a: Any, *args: Any, _name: str = _name, **kwargs: Any) -> Any:
        return getattr(torch.empty(0, dtype=a.dtype), _name)(*args, **kwargs)

    OPERATIONS[getattr(Tensor, _name)] = _new_named
