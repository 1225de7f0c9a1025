# Two commands do everything: `make demo` and `make test`. Each sets itself up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test lint clean

help:
	@echo "make demo   train the paper's 8 agents with 7 algorithms, print a table, draw the plots"
	@echo "make test   lint and run the whole test suite"
	@echo "make clean  remove the virtual environment and the caches"

# The constraints pin torch, so that pip never picks another build behind our back.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.version_info >= (3, 11) or sys.exit("gossamer needs Python 3.11 or newer, found " + v + "; run make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test]"
	@touch $@

demo: $(VENV)/.ready
	$(BIN)/gossamer demo

lint: $(VENV)/.ready
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports

# Tests that measure gaps between steps run by themselves, when the cores are free.
test: lint
	$(BIN)/python -m pytest -m "not alone"
	$(BIN)/python -m pytest -m alone -n 0

clean:
	rm -rf $(VENV) .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
