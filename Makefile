# Three commands do everything: `make demo`, `make test` and `make docs`. Each sets itself up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo check test docs lint clean

help:
	@echo "make demo   train the paper's 8 agents with 8 algorithms, print a table, draw the plots"
	@echo "make check  lint, check types and layers, test the rules and both engines"
	@echo "make test   lint, check types and layers, run every test"
	@echo "make docs   build the documentation into site/, which opens from disk"
	@echo "make clean  remove the virtual environment and the caches"

# A stamp file for each set of packages: the core, what the tests add, what the documentation adds.
# The constraints pin torch, so that pip never picks another build behind our back.
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable
$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.version_info >= (3, 11) or sys.exit("gossamer needs Python 3.11 or newer, found " + v + "; run make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) .
	@touch $@

$(VENV)/.ready: $(VENV)/.core
	$(INSTALL) ".[test]"
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	$(INSTALL) ".[docs]"
	@touch $@

demo: $(VENV)/.core
	$(BIN)/gossamer demo

lint: $(VENV)/.ready
	$(BIN)/ruff check src tests docs
	$(BIN)/ruff format --check src tests docs
	$(BIN)/mypy
	$(BIN)/lint-imports

# The inner loop: rules against the oracle, and the two engines against each other. -n: two test workers for two cores.
PYTEST := $(BIN)/python -m pytest -n 2
check: lint
	$(PYTEST) tests/rules tests/engine/test_engines_agree.py tests/engine/test_training.py tests/network/test_mixing.py tests/source

# Tests that measure gaps between steps run by themselves, when the cores are free.
test: lint
	$(PYTEST) -m "not alone"
	$(PYTEST) -m alone -n 0

# The variable silences a notice about the successor of the theme's makers.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

clean:
	rm -rf $(VENV) site .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
