# make demo: install, then compare methods on the embedded digits.
# make test: install what the tests need, then all checks.
# make quick: the tests for while you edit.
# make readme: follow the README in a fresh clone and a fresh environment.
# make docs: the docs site, in site/.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
# Of two cores, because some tests wait for other processes.
WORKERS ?= 3
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist worksteal -q
# Many tests start Python: each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test quick lint types unit contract torture readme docs browser clean
demo: .venv/.core
	$(BIN)/dualmix demo

test: lint types unit

quick: .venv/.dev
	HYPOTHESIS_PROFILE=quick $(PYTEST) -n auto --maxprocesses 4 -m 'not long and not slow' $(ARGS)

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/mypy

unit: .venv/.dev browser
	$(PYTEST) --cov --cov-report=term:skip-covered $(ARGS)

contract: .venv/.dev
	$(PYTEST) -m long $(ARGS)

# Hours at full size: make torture ARGS='calls=1000 files=200' tries less.
torture: .venv/.dev
	$(BIN)/python -m tests.torture $(ARGS)

readme:
	$(PYTHON) tests/readme_walk.py $(ARGS)

# The docs site, in site/: a warning, such as a broken link, stops it.
docs: .venv/.dev
	$(BIN)/python -m studies.method_cards
	$(BIN)/zensical build --clean --strict

# The page's tests drive a real browser. Only root on Debian can install it without asking.
browser:
	@have() { command -v "$$1" >/dev/null 2>&1; }; \
	browser() { have chromium || have chromium-browser || have google-chrome; }; \
	ready() { have chromedriver && browser; }; \
	if ! ready && [ "$$(id -u)" = 0 ] && [ -f /etc/debian_version ] && have apt-get; then \
	  echo "Installing chromium and its driver for the tests of the page (once)."; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
	    --no-install-recommends chromium chromium-driver >/dev/null; \
	fi; \
	if ! ready; then \
	  echo "SKIPPED: the tests of the page in a browser, for want of chromium and chromedriver."; \
	  echo "  Debian: sudo apt-get install chromium chromium-driver"; \
	  echo "  macOS:  brew install --cask chromium chromedriver"; \
	fi

.venv/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "dualmix needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..."; exit 1; }
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
	rm -rf .venv runs site .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis
