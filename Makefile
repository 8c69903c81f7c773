# Every target sets up what it needs in .venv by itself. `make` alone lists the targets.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
SPEC   ?= specs/attention/causal_prefill.naut
WORKERS ?= auto
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast gpu-test lint format types wheel clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: $(READY) ## Make the virtual environment and install everything into it

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed (PYTHON=...)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY) ## Compile a spec to kernel.cu and print the IR after each stage
	$(BIN)/nautilusc $(SPEC) -o kernel.cu --dump-ir all
	@echo "wrote kernel.cu ($$(wc -l < kernel.cu) lines)"

test: $(READY) ## All tests (GPU tests are skipped without a GPU)
	$(BIN)/python -m pytest -q -n $(WORKERS) $(PYTEST_ARGS)

test-fast: $(READY) ## Tests that take a moment only
	$(BIN)/python -m pytest -q -n $(WORKERS) -m 'not slow' $(PYTEST_ARGS)

gpu-test: $(READY) ## Only the tests that need a GPU
	$(BIN)/python -m pytest -q -m gpu $(PYTEST_ARGS)

lint: $(READY) ## Style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY) ## Put the style right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY) ## Strict types
	$(BIN)/mypy

wheel: $(READY) ## Build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean: ## Remove what was made, the environment too
	rm -rf $(VENV) build dist kernel.cu .mypy_cache .ruff_cache .pytest_cache .hypothesis
