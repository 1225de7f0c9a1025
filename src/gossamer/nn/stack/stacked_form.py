"""Stacked forms: how a kind of layer works on all agents at once, and their registry."""

from typing import Any, ClassVar, cast

from torch import nn

from gossamer.nn.stack.leave_vmap import Session, step_out
from gossamer.shapes import Tensor


class Form(nn.Module):
    """A kind of layer for n agents at once. A subclass implements only `run`.

    The layer object itself becomes the form: it keeps its identity, settings and children, and stays an instance of its
    own class. Its parameters and buffers are [n, *shape] under the same names.
    """

    slow: ClassVar[bool] = False  # as slow as a loop over the agents, so the user gets a warning
    layer_type: ClassVar[type[nn.Module]]  # the layer's own class
    session: Session

    @classmethod
    def supports(cls, layer: nn.Module) -> bool:
        """Say whether this layer of the registered type can take the form."""
        return True

    def run(self, *inputs: Any, **options: Any) -> Any:
        """Return the outputs [n, batch, ...] for inputs [n, batch, ...], in ordinary differentiable code."""
        raise AssertionError(f"{type(self).__name__} does not define run")

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Leave the vmap and run."""
        if not options:
            return step_out(self.session, self.run, *inputs)
        names, count = tuple(options), len(inputs)

        def run(*values: Any) -> Any:
            return self.run(*values[:count], **dict(zip(names, values[count:], strict=True)))

        return step_out(self.session, run, *inputs, *options.values())

    def __getattr__(self, name: str) -> Any:
        """Return a parameter: of all agents in `run`, of one agent to a container, as in F.linear(x, emb.weight)."""
        value = super().__getattr__(name)
        session = self.__dict__.get("session")
        if session is None or session.anchor is None or not isinstance(value, Tensor):
            return value
        return step_out(session, lambda: value)


FORMS: dict[type[nn.Module], type[Form]] = {}


def register_form(layer_type: type[nn.Module], form: type[Form]) -> None:
    """Give layers of exactly this type a stacked form. A form of a composite layer replaces its whole subtree."""
    FORMS[layer_type] = form


def form_of(layer: nn.Module) -> type[Form] | None:
    """Return the form that this layer can take."""
    form = FORMS.get(type(layer))
    # Hooks and an instance's own forward expect one agent, so such a layer stays under the vmap.
    changed = layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer)
    return form if form is not None and not changed and form.supports(layer) else None


def take_form(layer: nn.Module, form: type[Form], session: Session) -> None:
    """Turn a layer into its form; its parameters and buffers are already [n, *shape]."""
    layer_type = type(layer)
    layer.__class__ = type(f"{form.__name__}[{layer_type.__name__}]", (form, layer_type), {"layer_type": layer_type})
    cast(Form, layer).session = session
