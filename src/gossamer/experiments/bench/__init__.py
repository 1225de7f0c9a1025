"""Speed and memory of the engine, measured beside other ways to train N agents on the same machine."""

# Importing these puts their cases on the list, in this order.
from gossamer.experiments.bench import speed  # noqa: F401 # isort: skip
from gossamer.experiments.bench import scale  # noqa: F401 # isort: skip
from gossamer.experiments.bench import runtime  # noqa: F401 # isort: skip
from gossamer.experiments.bench.cases import CASES, choose_cases
from gossamer.experiments.bench.plan import Plan, make_plan
from gossamer.experiments.bench.render import to_markdown
from gossamer.experiments.bench.results import load_all, save

__all__ = ["CASES", "Plan", "choose_cases", "load_all", "make_plan", "save", "to_markdown"]
