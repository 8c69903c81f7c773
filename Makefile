# Every target sets up what it needs in .venv by itself. `make` alone lists the targets.
PYTHON  ?= $(shell .ci/find_python)
VENV    ?= .venv
BIN     := $(VENV)/bin
READY   := $(VENV)/.ready
OUT     ?= out
SPEC    ?= specs/attention/causal_prefill.naut
ARCH    ?= sm_90a
SMALL   ?= B=1,H=2,M=77,N=130,D=64
WORKERS ?= auto
PYTEST_ARGS ?=
N       ?= 10000
FUZZ_ARGS ?=
MUTATION_ARGS ?=
EVALUATION_ARGS ?=

# `make coverage` runs the folders of tests one after another, and the files beside them
PARTS   := $(patsubst tests/%/__init__.py,%,$(wildcard tests/*/__init__.py)) root

# Tests start many processes, each of which would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo specs evaluation test test-full test-fast test-quick gpu-test fuzz mutation coverage lint format types wheel clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: $(READY) ## Make the virtual environment and install everything into it

$(READY): pyproject.toml
	@test -n "$(PYTHON)" && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; PYTHON=... names one" >&2; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON) (once)" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
	@touch $@

demo: $(READY) ## A shipped spec to a kernel: every IR, a cubin with its resources, a check on the CPU
	@rm -rf $(OUT)/demo && mkdir -p $(OUT)/demo
	cat $(SPEC)
	$(BIN)/nautilusc $(SPEC) --arch $(ARCH) -o $(OUT)/demo/kernel.cu --dump-ir scalar --dump-dir $(OUT)/demo/ir
	$(BIN)/nautilusc $(SPEC) --arch $(ARCH) -o $(OUT)/demo/kernel.cubin --resource-usage
	$(BIN)/nautilusc check $(SPEC) --arch $(ARCH) --dim $(SMALL)
	@echo; echo "kernel: $(OUT)/demo/kernel.cu ($$(grep -c '' $(OUT)/demo/kernel.cu) lines) and kernel.cubin"
	@echo "the IR after every pass: $(OUT)/demo/ir ($$(ls $(OUT)/demo/ir | grep -c '') files)"

specs: $(READY) ## Compile every shipped spec to CUDA C++ in out/specs
	NAUTILUSC=$(BIN)/nautilusc specs/compile_all.sh $(OUT)/specs --arch $(ARCH)

evaluation: $(READY) ## Attention of models beside its peers on the GPU, in out/evaluation; goes on where it stopped
	@$(BIN)/python -c 'import matplotlib' 2>/dev/null || $(BIN)/python -m pip install --quiet --editable '.[plots]'
	$(BIN)/python -m nautilus.evaluation $(OUT)/evaluation $(EVALUATION_ARGS)

test: $(READY) ## All tests (those that need a GPU are skipped without one)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --durations 10 $(PYTEST_ARGS)

test-full: $(READY) ## All tests, with the cases that others stand for
	NAUTILUS_FULL=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --durations 10 $(PYTEST_ARGS)

test-fast: $(READY) ## Tests that take a moment only
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m 'not slow' $(PYTEST_ARGS)

test-quick: $(READY) ## Seconds: the shape of the code, its words, the pass manager
	$(BIN)/python -m pytest -q tests/test_shape.py tests/test_words.py tests/passes $(PYTEST_ARGS)

fuzz: $(READY) ## N random specs, schedules, dumps, files and command lines on all cores; goes on where it stopped
	$(BIN)/python -m tests.fuzz --count $(N) $(FUZZ_ARGS)

mutation: $(READY) ## N random mutants of the compiler's code against the tests near them; goes on where it stopped
	@$(BIN)/python -c 'import cosmic_ray' 2>/dev/null || $(BIN)/python -m pip install --quiet --editable '.[mutation]'
	$(BIN)/python -m tests.mutation --count $(N) $(MUTATION_ARGS)

coverage: $(PARTS:%=$(OUT)/covered/%) ## Which lines the tests reach, in out/coverage; goes on where it stopped
	$(BIN)/coverage combine --keep --quiet $^
	$(BIN)/coverage html --quiet --directory $(OUT)/coverage
	$(BIN)/coverage report --skip-covered

# one folder of tests; sys.monitoring costs nothing beside the tests, but only Python 3.12 and newer have it
$(OUT)/covered/%: $(READY)
	@mkdir -p $(@D)
	COVERAGE_CORE=sysmon COVERAGE_FILE=$@.part $(BIN)/python -m pytest -q -n $(WORKERS) \
	  --cov nautilus --cov-report= $(PYTEST_ARGS) $(if $(filter root,$*),tests/test_*.py,tests/$*)
	@mv $@.part $@

gpu-test: $(READY) ## Only the tests that need a GPU
	$(BIN)/python -m pytest -q -m gpu $(PYTEST_ARGS)

lint: $(READY) ## Style
	$(BIN)/ruff check .
	$(BIN)/nautilusc fmt --check specs grammar

format: $(READY) ## Put right what ruff and the formatter of specs can put right
	$(BIN)/ruff check --fix .
	$(BIN)/nautilusc fmt specs grammar

types: $(READY) ## Strict types
	$(BIN)/mypy

wheel: $(READY) ## Build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean: ## Remove what was made, the environment too
	rm -rf $(VENV) build dist $(OUT) kernel.cu .mypy_cache .ruff_cache .pytest_cache .hypothesis
