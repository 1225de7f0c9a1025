"""Ways to run N models on their batches: stacked into one, under torch.func.vmap, or one after the other."""

from gossamer.engine.execution.base import Execution
from gossamer.engine.execution.choice import EXECUTIONS, choose_execution, make_execution

__all__ = ["EXECUTIONS", "Execution", "choose_execution", "make_execution"]
