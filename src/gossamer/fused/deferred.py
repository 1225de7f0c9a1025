"""Tensors that are computed later: a rule runs as it is, what it does to its rows is recorded and done in one pass.

Known operations on whole rows are recorded. Any other operation, such as an index, first computes what it needs and
then runs as usual, so that every rule works, and rules of sums and products gain.
"""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from gossamer.fused.buffers import Buffers
from gossamer.fused.program import Wanted, compute
from gossamer.fused.terms import Leaf, LinkTable, Node, Total, operands, over_links, resolved
from gossamer.shapes import Tensor

OPERATIONS: dict[Callable[..., Any], Callable[..., Any]] = {}  # filled by operations.py
FLOATS = (torch.float32, torch.float64)


class Deferred(Tensor):
    """Rows of all agents, or one number for each of them, that may not be computed yet."""

    recorder: "Recorder"
    kind: torch.dtype
    node: Node | Total
    viewed: bool  # whether a view of the values may be in use
    passing: bool  # whether its values are wanted by no one else than the sums it is part of

    @staticmethod
    def __new__(
        cls: type["Deferred"], recorder: "Recorder", node: Node | Total, shape: Sequence[int], dtype: torch.dtype
    ) -> "Deferred":
        made = Tensor._make_wrapper_subclass(cls, shape, dtype=dtype)
        made.kind = dtype  # torch's own attribute is slower to read
        made.recorder, made.node, made.viewed, made.passing = recorder, node, False, False
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Deferred({tuple(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Record a known operation; run any other on the values."""
        known = OPERATIONS.get(func)
        if known is not None and (result := known(*args, **(kwargs or {}))) is not NotImplemented:
            return result
        if func in _ABOUT:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        return _on_values(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation on the values that reached torch without being asked for above."""
        return _on_values(func, args, kwargs or {})

    def values(self) -> Tensor:
        """Return the values, computed now unless they are known."""
        return self.recorder.values(self)

    def linked(self, starts: Tensor, senders: Tensor, weights: Tensor) -> "Deferred":
        """Return the weighted sum over each receiver's links; of these rows that of agent k is sent by k."""
        table = LinkTable(starts.numpy(), senders.numpy(), weights.double().numpy())
        return self.recorder.over_links(table, self)


class Recorder:
    """Records what happens to rows of `agents` agents and `size` columns, and computes it."""

    def __init__(self, agents: int, size: int) -> None:
        self.agents, self.size = agents, size
        self.shape = (agents, size)
        self.bytes_moved = 0  # of all passes so far
        self._buffers = Buffers()
        self._known: dict[int, Deferred] = {}
        self._made: list[weakref.ref[Deferred]] = []
        self._ones: dict[torch.dtype, Leaf] = {}

    def defer(self, tensor: Tensor) -> Tensor:
        """Return a stand-in for rows that are in memory; any other tensor as it is. The rows must not change."""
        if isinstance(tensor, Deferred):
            return tensor
        if tuple(tensor.shape) != self.shape or tensor.dtype not in FLOATS or tensor.stride(1) != 1:
            return tensor
        if id(tensor) not in self._known:
            self._known[id(tensor)] = Deferred(self, Leaf(tensor), tensor.shape, tensor.dtype)
        return self._known[id(tensor)]

    def made(self, node: Node | Total, dtype: torch.dtype) -> Deferred:
        """Return a stand-in for a node that is not computed yet."""
        made = Deferred(self, node, (self.agents,) if isinstance(node, Total) else self.shape, dtype)
        self._made.append(weakref.ref(made))
        return made

    def ones(self, dtype: torch.dtype) -> Leaf:
        """Return rows of ones: one row that all agents share."""
        if dtype not in self._ones:
            self._ones[dtype] = Leaf(torch.ones(1, self.size, dtype=dtype))
        return self._ones[dtype]

    def over_links(self, table: LinkTable, rows: Deferred) -> Deferred:
        """Return the weighted sum of the senders' rows over each agent's links."""
        node = over_links(table, rows.node)  # type: ignore[arg-type]
        if node is None:
            self.compute([rows])
            node = over_links(table, rows.node)  # type: ignore[arg-type]
        assert node is not None
        return self.made(node, rows.kind)

    def compute(self, rows: Iterable[Deferred]) -> None:
        """Compute these, and what is on the way to them and still in use, in one pass over memory."""
        targets = [each for each in rows if not _is_known(each)]
        if not targets:
            return
        alive = [each for ref in self._made if (each := ref()) is not None and not _is_known(each)]
        if any(isinstance(each.node, Total) for each in targets):
            targets += [each for each in alive if isinstance(each.node, Total)]  # totals come in groups: one pass
        needed = _needed([each.node for each in targets])
        targets += [each for each in alive if id(each.node) in needed and not each.passing]
        wanted = {id(each.node): Wanted(each.node, each.kind) for each in targets}
        self.bytes_moved += compute(list(wanted.values()), *self.shape, self._buffers)
        for each in targets:
            if not isinstance(each.node, Total):
                each.node = resolved(each.node)

    def values(self, rows: Deferred) -> Tensor:
        """Return the values of a stand-in."""
        self.compute([rows])
        if isinstance(rows.node, Total):
            assert rows.node.value is not None
            return rows.node.value
        assert isinstance(rows.node, Leaf)
        return rows.node.tensor

    def flush(self) -> None:
        """Compute everything that is still in use, before values change."""
        self.compute([each for ref in self._made if (each := ref()) is not None])

    def finish(self, wanted: Iterable[Tensor]) -> None:
        """Compute what is wanted of a step, and forget the rest."""
        self.compute([each for each in wanted if isinstance(each, Deferred)])
        self._known.clear()
        self._made.clear()


_ABOUT = {
    *(
        getattr(Tensor, name).__get__
        for name in ("shape", "dtype", "device", "ndim", "is_cuda", "layout", "requires_grad")
    ),
    *(getattr(Tensor, name) for name in ("size", "dim", "numel", "__len__", "is_floating_point", "element_size")),
}


def _is_known(rows: Deferred) -> bool:
    if isinstance(rows.node, Total):
        return rows.node.value is not None
    rows.node = resolved(rows.node)
    return isinstance(rows.node, Leaf)


def _needed(nodes: Iterable[Node | Total]) -> set[int]:
    """Return the ids of the nodes that these are computed from."""
    found, stack = set[int](), list(nodes)
    while stack:
        for used in operands(stack.pop()):
            if id(used) not in found:
                found.add(id(used))
                stack.append(used)
    return found


def _on_values(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run an operation on the values of its arguments."""
    used: list[Deferred] = []
    name = getattr(func, "__name__", "")
    changes = name == "__setitem__" or "out" in kwargs or (name.endswith("_") and not name.endswith("__"))
    if changes:
        for recorder in {id(each.recorder): each.recorder for each in args if isinstance(each, Deferred)}.values():
            recorder.flush()  # what was recorded means the values of before
    result = func(*_with_values(tuple(args), used), **_with_values(dict(kwargs), used))
    for each in used:
        each.viewed = each.viewed or _shares(result, each)
    return args[0] if changes and args and isinstance(args[0], Deferred) else result


def _with_values(item: Any, used: list[Deferred]) -> Any:
    """Return an argument with the values of its stand-ins, which are added to `used`.

    Not an inner function: one that calls itself would keep what it holds, all rows of a step, until Python looks for
    cycles, and so many tensors would be made anew.
    """
    if isinstance(item, Deferred):
        used.append(item)
        return item.values()
    if isinstance(item, list | tuple):
        return type(item)(_with_values(each, used) for each in item)
    return {name: _with_values(each, used) for name, each in item.items()} if isinstance(item, dict) else item


def _shares(result: Any, rows: Deferred) -> bool:
    """Say whether a result is a view of the values."""
    if isinstance(result, list | tuple):
        return any(_shares(each, rows) for each in result)
    if not isinstance(result, Tensor) or isinstance(result, Deferred) or result.layout != torch.strided:
        return False
    return result.untyped_storage().data_ptr() == rows.values().untyped_storage().data_ptr()
