"""Builds the stacked copy of a module: parameters and buffers of n agents, and layers in stacked forms."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from gossamer.errors import UserError
from gossamer.nn.stack.leave_vmap import Session
from gossamer.nn.stack.stacked_form import Form, form_of, take_form
from gossamer.shapes import Tensor


@dataclass(frozen=True)
class Slot:
    """A place in a module that holds a parameter or a buffer."""

    owner: nn.Module
    attribute: str
    is_buffer: bool

    @property
    def tensor(self) -> Tensor:
        """Return the present parameter or buffer."""
        held = (self.owner._buffers if self.is_buffer else self.owner._parameters)[self.attribute]
        assert held is not None
        return held


def build(module: nn.Module, session: Session) -> tuple[nn.Module, list[str]]:
    """Return the stacked copy of a module, and its layers without a fast form as 'path (Type)'."""
    stacked = copy.deepcopy(module)
    _stack_tensors(stacked, session.n)
    slow: list[str] = []
    _take_forms(stacked, session, "", slow, set())
    return stacked, slow


def loose_slots(stacked: nn.Module) -> dict[str, Slot]:
    """Return, by name, the parameters and buffers outside all forms, which go through the vmap.

    A tied parameter appears under each of its names.
    """
    slots: dict[str, Slot] = {}
    covered: tuple[str, ...] = ()
    for path, module in stacked.named_modules(remove_duplicate=False):
        prefix = path + "." if path else ""
        if prefix.startswith(covered) and covered:
            continue
        if isinstance(module, Form):
            covered = (*covered, prefix)
            continue
        slots |= {prefix + slot.attribute: slot for slot in _own_slots(module)}
    return slots


def _own_slots(module: nn.Module) -> Iterator[Slot]:
    for is_buffer, held in ((False, module._parameters), (True, module._buffers)):
        yield from (Slot(module, name, is_buffer) for name, tensor in held.items() if tensor is not None)


def _stack_tensors(module: nn.Module, n: int) -> None:
    """Replace every parameter and buffer by n copies; tied ones stay tied."""
    copies: dict[Tensor, Tensor] = {}
    for part in module.modules():
        for slot in list(_own_slots(part)):
            one = slot.tensor
            if is_lazy(one):
                raise UserError(f"{type(part).__name__} has no shape yet; run the module once before it is stacked")
            if one not in copies:
                many = one.detach().expand(n, *one.shape).clone(memory_format=torch.contiguous_format)
                copies[one] = many if slot.is_buffer else nn.Parameter(many, requires_grad=one.requires_grad)
            setattr(part, slot.attribute, copies[one])


def _take_forms(module: nn.Module, session: Session, path: str, slow: list[str], done: set[nn.Module]) -> None:
    """Turn the module into its stacked form, or else the layers below it."""
    if module in done:
        return
    done.add(module)
    form = form_of(module)
    has_tensors = any(True for _ in _own_slots(module))
    children = list(module.named_children())
    # torch's own composites with parameters (attention) use their children directly, so they count as one layer.
    is_layer = not children or type(module).__module__.startswith("torch.nn.modules.")
    if (form is not None and form.slow) or (form is None and has_tensors and is_layer):
        slow.append(f"{path or 'the module itself'} ({type(module).__name__})")
    if form is not None:
        take_form(module, form, session)
    if form is not None or not (has_tensors and is_layer):  # the children of a composite form have forms of their own
        for name, child in children:
            _take_forms(child, session, f"{path}.{name}" if path else name, slow, done)
