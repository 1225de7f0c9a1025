"""n agents of one model as one module."""

from gossamer.nn.stack import forms
from gossamer.nn.stack.form import Form, register_form
from gossamer.nn.stack.stacked import Stacked, StackWarning, stack

__all__ = ["Form", "StackWarning", "Stacked", "forms", "register_form", "stack"]
