# One command for people and CI alike. Everything lives in .venv, which makes itself and is up to date when
# pyproject.toml is older than its stamp.

SHELL := /bin/bash
PYTHON ?= $(shell for each in python3 python3.13 python3.12 python3.11; do \
	$$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each && break; done)
NEEDS_PYTHON = @test -n "$(PYTHON)" || \
	{ echo "Dibs needs Python 3.11 or newer: install one, or say make PYTHON=/path/to/python." >&2; exit 1; }
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CODE := $(wildcard src tests bench examples scripts)
PYTEST_ARGS ?= -n 3 -q

.PHONY: help demo test soak chaos lint format types contracts docs bench bench-postgres bench-redis clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(VENV)/.runs  ## two thousand tasks, a few disasters, about half a minute
	@$(BIN)/dibs demo

test: $(VENV)/.develops  ## the whole test suite
	$(BIN)/pytest $(PYTEST_ARGS)

soak: $(VENV)/.develops  ## repeats and long runs of the tests, before a change is called done
	$(BIN)/pytest -m soak $(PYTEST_ARGS)

chaos: $(VENV)/.develops  ## real processes and stores under faults drawn from a seed; ARGS="--minutes 60"
	PYTHONPATH=tests $(BIN)/python -m chaos $(ARGS)

lint: $(VENV)/.develops  ## style, and whether files are formatted
	$(BIN)/ruff check .
	$(BIN)/ruff format --check $(CODE)

format: $(VENV)/.develops  ## format files, and fix what can be fixed
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix .

types: $(VENV)/.develops  ## mypy and pyright
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

contracts: $(VENV)/.develops  ## which part may import which
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/.develops  ## write the generated pages again
	$(BIN)/python scripts/generate_docs.py

bench: $(VENV)/bench/.installed  ## compare with the SQLite peers, in one run
	$(VENV)/bench/bin/python bench/compare.py

bench-postgres: $(VENV)/bench/.postgres  ## compare with the PostgreSQL peers, in one run
	$(VENV)/bench/bin/python bench/postgres_compare.py

bench-redis: $(VENV)/bench/.redis  ## compare with the Redis peers, in one run
	$(VENV)/bench/bin/python bench/redis_compare.py

clean:  ## remove everything that was made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(NEEDS_PYTHON)
	@echo "Making $(VENV) with $(PYTHON) …"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runs: pyproject.toml | $(BIN)/python
	@echo "Installing Dibs into $(VENV) …"
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.develops: pyproject.toml | $(BIN)/python
	@echo "Installing Dibs and its development tools into $(VENV) …"
	@$(PIP) install --editable '.[all,dev]'
	@touch $@ $(VENV)/.runs

$(VENV)/bench/.installed: pyproject.toml
	$(NEEDS_PYTHON)
	@test -x $(VENV)/bench/bin/python || $(PYTHON) -m venv $(VENV)/bench
	@echo "Installing Dibs and its peers into $(VENV)/bench …"
	@$(VENV)/bench/bin/python -m pip --disable-pip-version-check --quiet install --editable '.[bench]'
	@touch $@

# The wheel of Node brings npm; without it, or without its registry, the peers in Node are left out.
define INSTALL_NODE_PEERS
@mkdir -p $(VENV)/bench/node && cp bench/node/package.json $(VENV)/bench/node/
@PATH="$(CURDIR)/$(VENV)/bench/bin:$$PATH" npm install --prefix $(VENV)/bench/node --no-audit --no-fund --loglevel=error \
	|| echo "npm did not install the peers in Node: they are left out." >&2
endef

$(VENV)/bench/.postgres: pyproject.toml bench/node/package.json
	$(NEEDS_PYTHON)
	@test -x $(VENV)/bench/bin/python || $(PYTHON) -m venv $(VENV)/bench
	@echo "Installing Dibs and its PostgreSQL peers into $(VENV)/bench …"
	@$(VENV)/bench/bin/python -m pip --disable-pip-version-check --quiet install --editable '.[bench-postgres]'
	$(INSTALL_NODE_PEERS)
	@touch $@

# The peers in Python ask for different versions of redis-py: each has an environment of its own.
$(VENV)/bench/.redis: pyproject.toml bench/node/package.json bench/redis_contestants.py
	$(NEEDS_PYTHON)
	@test -x $(VENV)/bench/bin/python || $(PYTHON) -m venv $(VENV)/bench
	@echo "Installing Dibs and its Redis peers into $(VENV)/bench …"
	@$(VENV)/bench/bin/python -m pip --disable-pip-version-check --quiet install --editable '.[bench-redis]'
	$(INSTALL_NODE_PEERS)
	@$(VENV)/bench/bin/python bench/redis_install.py
	@touch $@
