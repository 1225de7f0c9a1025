"""Leaves a vmap: a layer that is called for one agent works on the tensors of all agents.

Under torch.func.vmap a tensor is a wrapper: code sees [batch, ...], the wrapped tensor is [n, batch, ...]. `step_out`
unwraps the inputs, calls a function on them, and wraps the outputs. Autograd runs outside the vmap, so it records the
function as ordinary code.
"""

import enum
from collections.abc import Callable
from typing import Any

import torch

from gossamer.errors import UserError
from gossamer.shapes import Float, Tensor


class MapLayout(enum.IntEnum):
    """The memory layout of feature maps between layers, fastest first."""

    CHANNELS_LAST = 0  # for images on a GPU, whose convolutions prefer it
    CHANNELS_FIRST = 1  # the features of an example are contiguous, so view(batch, -1) works
    PLAIN = 2  # each agent's maps are contiguous: any view works, but every layer copies


try:
    # As the vmap rule of torch.autograd.Function, but without pytrees: 12 instead of 125 microseconds per call.
    from torch._C._functorch import _add_batch_dim, _unwrap_batched
    from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter

    SHORT_WAY = True
except ImportError:  # private names: another version of torch may lack them
    SHORT_WAY = False

AgentsFunction = Callable[..., Any]


class Session:
    """Whether the call of a stacked module is inside or outside its vmap.

    Inside, `anchor` is a tensor that the vmap batches. It has the level of the vmap, also if the input of a layer is
    the same for all agents.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.dtype: torch.dtype | None = None  # of activations, if it differs from the parameters'
        self.anchor: Tensor | None = None
        self.layout = MapLayout.CHANNELS_LAST
        self.counters: list[Tensor] = []  # batch counters to increase together after the pass
        self.places: dict[int, Tensor] = {}  # by id of a parameter: where a layer may leave its gradient

    def fold(self, x: Float[Tensor, "n batch channels *space"]) -> Float[Tensor, "batch folded *space"]:
        """Concatenate the agents' channels.

        The result of `unfold` is folded without a copy (unless PLAIN), also after elementwise operations, which keep
        the strides.
        """
        n, batch, channels, *space = x.shape
        if self.layout == MapLayout.CHANNELS_LAST and x.is_cuda and len(space) == 2:
            return x.permute(1, 3, 4, 0, 2).reshape(batch, *space, n * channels).permute(0, 3, 1, 2)
        return x.transpose(0, 1).reshape(batch, n * channels, *space)

    def unfold(self, y: Tensor) -> Tensor:
        """Split the channels of [batch, n * channels, ...] over the agents: [n, batch, channels, ...]."""
        x = y.view(y.shape[0], self.n, y.shape[1] // self.n, *y.shape[2:]).transpose(0, 1)
        return x.contiguous() if self.layout == MapLayout.PLAIN else x

    def call(self, anchor: Tensor | None, run: AgentsFunction, inputs: tuple[Any, ...]) -> Any:
        """Call `run` inside the vmap (with its anchor) or outside it (None)."""
        before, self.anchor = self.anchor, anchor
        try:
            return run(*inputs)
        finally:
            self.anchor = before


def step_out(session: Session, run: AgentsFunction, *inputs: Any) -> Any:
    """Call `run` on the inputs of all agents, [n, ...] each, and return the output of the present agent.

    Inputs may be tuples or lists of tensors; other values pass unchanged. A tensor that is the same for all agents is
    expanded. Outside the vmap the inputs already are those of all agents.
    """
    if session.anchor is None:
        return run(*inputs)
    if SHORT_WAY:
        return _step_out(session, session.anchor, run, inputs)
    return _StepOut.apply(session, run, session.anchor, *inputs)


def _step_out(session: Session, anchor: Tensor, run: AgentsFunction, inputs: tuple[Any, ...]) -> Any:
    interpreter = retrieve_current_functorch_interpreter()
    level = interpreter.level()

    def raw(value: Any) -> Any:
        if isinstance(value, Tensor):
            return _agents_first(*_unwrap_batched(value, level), session.n)
        return type(value)(map(raw, value)) if isinstance(value, tuple | list) else value

    def wrapped(value: Any) -> Any:
        if isinstance(value, Tensor):
            return _add_batch_dim(value, 0, level)
        return type(value)(map(wrapped, value)) if isinstance(value, tuple | list) else value

    with interpreter.lower():
        if _unwrap_batched(anchor, level)[1] is None:
            raise UserError(
                "a layer of the model is called inside another transform of torch.func, so the model cannot be "
                "stacked; use execution=loop"
            )
        output = session.call(None, run, tuple(map(raw, inputs)))
    return wrapped(output)


class _StepOut(torch.autograd.Function):
    """The same with torch's public functions only."""

    @staticmethod
    def forward(session: Session, run: AgentsFunction, anchor: Tensor, *inputs: Any) -> Any:
        """Never runs: the anchor is always batched, so torch calls `vmap` below."""
        raise AssertionError("a stacked layer was called outside its vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save nothing; torch requires the method."""

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], session: Session, run: AgentsFunction, anchor: Tensor, *inputs: Any
    ) -> tuple[Any, int]:
        """Call `run` on the raw tensors, with agents as the first dimension."""

        def raw(value: Any, dim: Any) -> Any:
            if isinstance(value, Tensor):
                return _agents_first(value, dim, session.n)
            return type(value)(map(raw, value, dim)) if isinstance(value, tuple | list) else value

        return session.call(None, run, tuple(map(raw, inputs, in_dims[3:]))), 0


def _agents_first(raw: Tensor, dim: int | None, n: int) -> Tensor:
    """Return a view of the raw tensor with agents as the first dimension; strides do not change."""
    if dim is None:
        return raw.expand(n, *raw.shape)
    return raw if dim == 0 else raw.movedim(dim, 0)
