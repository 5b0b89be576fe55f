# make demo: install, then compare methods on the embedded digits.   make test: install what tests need, then all checks.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint types unit contract clean
demo: .venv/.core
	$(BIN)/dualmix demo

test: lint types unit

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/mypy

unit: .venv/.dev
	$(BIN)/pytest -n 2 -q $(ARGS)

contract: .venv/.dev
	$(BIN)/pytest -n 2 -q -m long tests/test_contract.py $(ARGS)

.venv/.python:
	@$(PYTHON) -c 'import sys; sys.exit("dualmix needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.core: .venv/.python pyproject.toml constraints.txt
	@echo "Installing dualmix into .venv (once; it takes a minute or more)."
	$(PIP) -e .
	@touch $@

.venv/.dev: .venv/.python pyproject.toml constraints.txt
	@echo "Installing dualmix and its test tools into .venv (once; it takes a minute or more)."
	$(PIP) -e '.[dev]'
	@touch $@ .venv/.core

clean:
	rm -rf .venv runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
