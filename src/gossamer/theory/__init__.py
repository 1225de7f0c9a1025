"""The paper's bounds, their constants estimated from a run, and a stability analysis by linearisation."""

from gossamer.theory.bounds import CAVEATS, FORMS, Bound, Constants, consensus_bound, nonconvex_bound, pl_bound
from gossamer.theory.estimate import Estimates, estimate_constants
from gossamer.theory.functions import Function, quadratic, rastrigin, rosenbrock
from gossamer.theory.problem import FunctionProblem, Problem, TaskProblem
from gossamer.theory.stability import Stability, stability

__all__ = [
    "CAVEATS",
    "FORMS",
    "Bound",
    "Constants",
    "Estimates",
    "Function",
    "FunctionProblem",
    "Problem",
    "Stability",
    "TaskProblem",
    "consensus_bound",
    "estimate_constants",
    "nonconvex_bound",
    "pl_bound",
    "quadratic",
    "rastrigin",
    "rosenbrock",
    "stability",
]
