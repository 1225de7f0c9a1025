"""The way out of a vmap: a layer called for one agent works on the tensors of all agents at once.

Under torch.func.vmap a tensor is a wrapper: code sees [batch, ...], while [n, batch, ...] lies underneath. `step_out`
takes the wrappers off, calls a function on what lies underneath, and wraps what it returns. Autograd runs outside of
the vmap, so it records the function as ordinary code.
"""

import enum
from collections.abc import Callable
from typing import Any

import torch

from gossamer.errors import UserError
from gossamer.shapes import Float, Tensor


class MapLayout(enum.IntEnum):
    """How feature maps lie in memory between layers, fastest first. The first is for images on a GPU alone."""

    CHANNELS_LAST = 0  # what a GPU's convolutions prefer
    CHANNELS_FIRST = 1  # an example's features lie together, so that view(batch, -1) works
    PLAIN = 2  # every agent's as if it were alone: any view works, at a copy for each layer


def fold(x: Float[Tensor, "n batch channels *space"], layout: MapLayout) -> Float[Tensor, "batch folded *space"]:
    """Put the agents' channels side by side.

    What `unfold` returned is folded again without a copy (unless PLAIN), also after elementwise operations: they keep
    the strides.
    """
    n, batch, channels, *space = x.shape
    if layout == MapLayout.CHANNELS_LAST and x.is_cuda and len(space) == 2:
        return x.permute(1, 3, 4, 0, 2).reshape(batch, *space, n * channels).permute(0, 3, 1, 2)
    return x.transpose(0, 1).reshape(batch, n * channels, *space)


def unfold(y: Tensor, n: int, layout: MapLayout) -> Tensor:
    """Give each of n agents its channels of [batch, n * channels, ...] back: [n, batch, channels, ...]."""
    x = y.view(y.shape[0], n, y.shape[1] // n, *y.shape[2:]).transpose(0, 1)
    return x.contiguous() if layout == MapLayout.PLAIN else x


try:
    # What torch.autograd.Function does in its own vmap rule, less the pytrees: 12 instead of 125 microseconds a call.
    from torch._C._functorch import _add_batch_dim, _unwrap_batched
    from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter

    SHORT_WAY = True
except ImportError:  # private names: another version of torch may lack them
    SHORT_WAY = False

AgentsFunction = Callable[..., Any]


class Session:
    """Where the call of a stacked module stands: inside of its vmap, or outside.

    Inside, `anchor` is a tensor that the vmap batches. It tells the level of the vmap, and makes the way out known to
    torch even where a layer's own input is the same for all agents.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.dtype: torch.dtype | None = None  # of activations, where it is another than that of the parameters
        self.anchor: Tensor | None = None
        self.layout = MapLayout.CHANNELS_LAST
        self.counters: list[Tensor] = []  # of batches, to be raised together after the pass

    def fold(self, x: Tensor) -> Tensor:
        """Return [batch, n * channels, ...] for [n, batch, channels, ...]."""
        return fold(x, self.layout)

    def unfold(self, y: Tensor) -> Tensor:
        """Return [n, batch, channels, ...] for [batch, n * channels, ...]."""
        return unfold(y, self.n, self.layout)

    def call(self, anchor: Tensor | None, run: AgentsFunction, inputs: tuple[Any, ...]) -> Any:
        """Call `run`, inside of the vmap (with its anchor) or outside (None), and come back."""
        before, self.anchor = self.anchor, anchor
        try:
            return run(*inputs)
        finally:
            self.anchor = before


def step_out(session: Session, run: AgentsFunction, *inputs: Any) -> Any:
    """Call `run` on the inputs of all agents, [n, ...] each, and return its output as that of the agent at hand.

    Tensors may lie in tuples or lists; anything else is passed on. A tensor that is the same for all agents is
    expanded. Outside of the vmap the inputs are those of all agents already.
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
                "a layer of the model is called inside of another transform of torch.func, so the model cannot be "
                "stacked; use execution=loop"
            )
        output = session.call(None, run, tuple(map(raw, inputs)))
    return wrapped(output)


class _StepOut(torch.autograd.Function):
    """The same by public means alone."""

    @staticmethod
    def forward(session: Session, run: AgentsFunction, anchor: Tensor, *inputs: Any) -> Any:
        """Never runs: the anchor is always batched, so that torch takes the rule below."""
        raise AssertionError("a stacked layer was called outside of the vmap it belongs to")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save nothing; torch demands the method."""

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], session: Session, run: AgentsFunction, anchor: Tensor, *inputs: Any
    ) -> tuple[Any, int]:
        """Call `run` on the raw tensors, with the agents in front."""

        def raw(value: Any, dim: Any) -> Any:
            if isinstance(value, Tensor):
                return _agents_first(value, dim, session.n)
            return type(value)(map(raw, value, dim)) if isinstance(value, tuple | list) else value

        return session.call(None, run, tuple(map(raw, inputs, in_dims[3:]))), 0


def _agents_first(raw: Tensor, dim: int | None, n: int) -> Tensor:
    """Return the raw tensor with the agents' dimension in front. It is a view: strides stay what they are."""
    if dim is None:
        return raw.expand(n, *raw.shape)
    return raw if dim == 0 else raw.movedim(dim, 0)
