"""n agents as one module: `stacked = stack(module, n)`, `stacked(x)` for x [n, batch, ...]."""

import contextlib
import copy
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from gossamer.errors import UserError
from gossamer.nn.stack.build import build, loose_slots
from gossamer.nn.stack.leave_vmap import MapLayout, Session
from gossamer.shapes import Float, Tensor


class Undo:
    """The values that a forward pass may change, to restore them."""

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self._buffers: list[tuple[Tensor, Tensor]] = [(buffer, buffer.clone()) for buffer in module.buffers()]
        self._device = device
        self._random = torch.get_rng_state()
        # A pass that is being captured draws no random numbers now.
        draws_now = device.type == "cuda" and not torch.cuda.is_current_stream_capturing()
        self._gpu_random = torch.cuda.get_rng_state(device) if draws_now else None

    def restore(self) -> None:
        """Restore all values."""
        for buffer, value in self._buffers:
            buffer.copy_(value)
        torch.set_rng_state(self._random)
        if self._gpu_random is not None:
            torch.cuda.set_rng_state(self._gpu_random, self._device)


class StackWarning(UserWarning):
    """The model has layers that stacking does not make faster."""


def stack(module: nn.Module, n: int) -> "Stacked":
    """Return a module that runs n agents at once, each with its own copy of the parameters and buffers.

    Args:
        module: any torch module; it is copied and does not change.
        n: the number of agents.
    """
    if n < 1:
        raise UserError(f"cannot stack {n} agents; use 1 or more")
    if any(isinstance(part, Stacked) for part in module.modules()):
        raise UserError("the module is stacked already; stack the module that it was made from")
    stacked = Stacked(module, n)
    if stacked.slow:
        shown = ", ".join(stacked.slow[:4]) + (f" and {len(stacked.slow) - 4} more" if len(stacked.slow) > 4 else "")
        warnings.warn(f"no stacked form for {shown}: correct, but slower", StackWarning, stacklevel=2)
    return stacked


class Stacked(nn.Module):
    """n agents of one architecture, made by `stack`: `stacked(x)` for x [n, batch, ...].

    Args:
        module: the module of each agent.
        n: the number of agents.
    """

    _template: nn.Module

    def __init__(self, module: nn.Module, n: int) -> None:
        super().__init__()
        self.n = n
        self.session = Session(n)
        self.module, self.slow = build(module, self.session)
        # Not a child, so its parameters are not listed.
        self.__dict__["_template"] = copy.deepcopy(module)
        loose = loose_slots(self.module)
        # A tied parameter goes through the vmap once, so it stays tied inside.
        once = {slot.tensor: slot for slot in loose.values()}
        places = {tensor: k for k, tensor in enumerate(once)}
        self._slots = list(once.values())
        self._place = {name: places[slot.tensor] for name, slot in loose.items()}
        # It only has to be batched, so it may stay on the CPU.
        self._anchor = torch.zeros(n)
        self._modes_seen: set[bool] = set()
        self.training = module.training

    def forward(self, *inputs: Any) -> Any:
        """Return [n, batch, ...] for inputs [n, batch, ...]; other values than tensors are the same for all agents."""
        for x in inputs:
            if isinstance(x, Tensor) and (x.dim() == 0 or len(x) != self.n):
                raise UserError(
                    f"the input has shape {list(x.shape)} but there are {self.n} agents; give [{self.n}, batch, ...]"
                )
        self.session.counters.clear()
        with _kernels_that_vmap_knows(inputs):
            try:
                output, changed = self._all_agents(inputs)
            except (RuntimeError, ValueError) as error:
                if isinstance(error, UserError) or not OF_VMAP.search(str(error)):
                    raise
                raise _cannot_be_stacked(self._template, str(error)) from error
        with torch.no_grad():
            if self.session.counters:
                torch._foreach_add_(self.session.counters, 1)
            for name, value in changed.items():
                self._slots[self._place[name]].tensor.copy_(value)
        return output

    def _all_agents(self, inputs: tuple[Any, ...]) -> tuple[Any, dict[str, Tensor]]:
        """Run the vmap in the fastest layout of feature maps that works with the module's own code.

        Code such as x.view(batch, -1) requires a layout. The first pass in training and in evaluation shows whether it
        works; if it fails, everything is restored and the next layout is tried.
        """
        tensors = [self._working(slot.tensor) for slot in self._slots]
        in_dims = (0, 0, *(0 if isinstance(x, Tensor) else None for x in inputs))
        run = torch.func.vmap(self._one_agent, in_dims=in_dims, randomness="different")
        if self.training in self._modes_seen:
            return run(self._anchor, tensors, *inputs)
        device = next((x.device for x in inputs if isinstance(x, Tensor)), self._anchor.device)
        undo = Undo(self.module, device)
        while True:
            try:
                result: tuple[Any, dict[str, Tensor]] = run(self._anchor, tensors, *inputs)
            except RuntimeError as error:
                if "view size is not compatible" not in str(error) or self.session.layout == MapLayout.PLAIN:
                    raise
            else:
                self._modes_seen.add(self.training)
                return result
            undo.restore()
            self.session.counters.clear()
            self.session.layout = MapLayout(self.session.layout + 1)

    def _working(self, tensor: Tensor) -> Tensor:
        """Return a parameter in the type of the activations."""
        return tensor.to(self.session.dtype) if tensor.is_floating_point() and tensor.requires_grad else tensor

    def compute_in(self, dtype: torch.dtype | None) -> "Stacked":
        """Compute in another type than the parameters, such as bfloat16; inputs must have it."""
        self.session.dtype = dtype
        return self

    def bind(self, flat: Float[Tensor, "n d"]) -> "Stacked":
        """Make the parameters views of the rows of `flat`, in their order."""
        for parameter, piece in zip(self.stacked_parameters().values(), self.pieces(flat.detach()), strict=True):
            parameter.data = piece
        return self

    def pieces(self, flat: Float[Tensor, "n d"]) -> list[Tensor]:
        """Return views of the rows of `flat` in the shapes of the parameters, in their order."""
        shapes = [parameter.shape for parameter in self.stacked_parameters().values()]
        parts = flat.split([shape[1:].numel() for shape in shapes], dim=1)
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    @contextlib.contextmanager
    def gradients_to(self, flat: Float[Tensor, "n d"]) -> Iterator[list[Tensor]]:
        """Within the context, layers may write the gradients of a backward pass into the rows of `flat`."""
        places = self.pieces(flat)
        self.session.places = dict(zip(map(id, self.stacked_parameters().values()), places, strict=True))
        try:
            yield places
        finally:
            self.session.places = {}

    def _one_agent(self, anchor: Tensor, tensors: list[Tensor], *inputs: Any) -> tuple[Any, dict[str, Tensor]]:
        """Return the module's output for one agent, and the buffers that it replaced instead of changing them."""
        if not tensors:
            return self.session.call(anchor, self.module, inputs), {}
        given = {name: tensors[k] for name, k in self._place.items()}
        values = dict(given)  # functional_call stores replaced buffers here

        def run(*inputs: Any) -> Any:
            return torch.func.functional_call(self.module, values, inputs, tie_weights=False)

        output = self.session.call(anchor, run, inputs)
        return output, {name: value.detach() for name, value in values.items() if value is not given[name]}

    def stacked_parameters(self) -> dict[str, Tensor]:
        """Return the parameters, [n, *shape] each, by the names and in the order of the original module."""
        return dict(self.module.named_parameters())

    def stacked_buffers(self) -> dict[str, Tensor]:
        """Return the buffers, [n, *shape] each, by the names and in the order of the original module."""
        return dict(self.module.named_buffers())

    def load(self, modules: Sequence[nn.Module]) -> "Stacked":
        """Copy the parameters and buffers of n modules into the stack, one per agent; return the stack."""
        if len(modules) != self.n:
            raise UserError(f"cannot load {len(modules)} modules into a stack of {self.n} agents; give {self.n}")
        mine = _tensors(self.module)
        theirs = [_tensors(module) for module in modules]
        wanted = {name: tensor.shape[1:] for name, tensor in mine.items()}
        for i, tensors in enumerate(theirs):
            _check_architecture(i, {name: tensor.shape for name, tensor in tensors.items()}, wanted)
        with torch.no_grad():
            for name, tensor in mine.items():
                for row, one in zip(tensor, theirs, strict=True):
                    row.copy_(one[name])
        return self

    def unstack(self) -> list[nn.Module]:
        """Return n ordinary modules with copies of the agents' values."""
        modules = [copy.deepcopy(self._template) for _ in range(self.n)]
        mine = _tensors(self.module)
        for i, module in enumerate(modules):
            for name, tensor in _tensors(module).items():
                tensor.data = mine[name].detach()[i].clone()
                if isinstance(tensor, nn.Parameter):
                    tensor.requires_grad_(mine[name].requires_grad).grad = None
            for old, new in zip(self.module.modules(), module.modules(), strict=True):
                new.training = old.training
        return modules

    def extra_repr(self) -> str:
        """Return the number of agents for the text of the module."""
        return f"n={self.n}"


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return dict(module.named_parameters()) | dict(module.named_buffers())


def _check_architecture(i: int, shapes: dict[str, torch.Size], wanted: dict[str, torch.Size]) -> None:
    for name in wanted | shapes:
        if shapes.get(name) != wanted.get(name):
            one, other = (list(s[name]) if name in s else "nothing" for s in (shapes, wanted))
            raise UserError(
                f"module {i} has {one} as '{name}' where the stack has {other}; load modules of the same architecture"
            )


@contextlib.contextmanager
def _kernels_that_vmap_knows(inputs: tuple[Any, ...]) -> Iterator[None]:
    """Keep torch's attention from fused kernels that vmap cannot batch: they would run agent by agent or fail."""
    fused = torch.backends.mha.get_fastpath_enabled()
    flash = torch.backends.cuda.flash_sdp_enabled()  # also applies to the CPU
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.cuda.enable_flash_sdp(flash and any(isinstance(x, Tensor) and x.is_cuda for x in inputs))
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        torch.backends.cuda.enable_flash_sdp(flash)


# Parts of torch's messages about operations that a vmap does not support.
OF_VMAP = re.compile(r"vmap|view size is not compatible|[Bb]atching rule|doesn't have storage|BatchedTensor")


def _cannot_be_stacked(module: nn.Module, message: str) -> UserError:
    reason = re.split(r"\. |\n| \(", message.strip())[0].rstrip(".")
    return UserError(f"{type(module).__name__} cannot be stacked ({reason}); use execution=loop")
