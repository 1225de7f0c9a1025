"""Speed and memory of the engine, compared with other ways to train N agents on the same machine."""

# Importing these modules registers their cases, in this order.
from gossamer.bench import speed  # noqa: F401 # isort: skip
from gossamer.bench import scale  # noqa: F401 # isort: skip
from gossamer.bench import rule_cost  # noqa: F401 # isort: skip
from gossamer.bench import many_agents  # noqa: F401 # isort: skip
from gossamer.bench import timed_cases  # noqa: F401 # isort: skip
from gossamer.bench import runtime_cases  # noqa: F401 # isort: skip
from gossamer.bench import start_case  # noqa: F401 # isort: skip
from gossamer.bench.cases import CASES, Request, choose_cases, make_request
from gossamer.bench.results import load_all, save, to_markdown

__all__ = ["CASES", "Request", "choose_cases", "load_all", "make_request", "save", "to_markdown"]
