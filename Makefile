# Every target works on a bare machine with python3.11+, g++ and make; the first call fills .venv.
# `make test TORCH=2.15.0 PYTHON=python3.12` fills and uses an environment of that torch and that Python.

PYTHON ?= python3
TORCH  ?=
PINNED := $(patsubst torch==%,%,$(shell grep '^torch==' constraints.txt))
MINOR  := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV   := $(if $(TORCH),.venvs/py$(MINOR)-torch$(TORCH),.venv)
BIN    := $(VENV)/bin

SWEEP  ?=
INTEGRATIONS := .venvs/integrations

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-tiny test-all test-matrix test-integrations sweep environment lint format docs clean toolchain browser

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: toolchain $(VENV)/.installed-run ## install what is needed and run examples/demo.py
	$(BIN)/python examples/demo.py

test: lint toolchain browser ## lint, types and all tests but the slow ones
	$(run-tests)

test-tiny: $(VENV)/.installed-dev ## the tests that take seconds
	$(BIN)/python -m pytest tests/tiny

test-all: lint toolchain browser $(VENV)/.installed-models ## test, plus the slow tests and the benchmarks (rewrites the tables in docs)
	$(run-tests)

test-matrix: $(VENV)/.installed-dev ## a short selection on every supported torch and each Python that is installed
	$(BIN)/python -m tests.matrix --python $(PYTHON) --write-docs

test-integrations: toolchain $(INTEGRATIONS)/.installed ## trainers, trackers, notebooks, agents, Ray: their packages, in an environment of its own
	$(INTEGRATIONS)/bin/python -m pytest -m "slow or not slow" -n $(JOBS) --dist loadscope tests/integration/integrations \
	  tests/integration/cluster tests/unit/processes/test_cluster.py \
	  tests/integration/ranks/test_flipped_bits.py::test_ray_gives_the_same_answer \
	  tests/integration/determinism/test_pytest_plugin.py tests/integration/cli/test_json_of_programs.py

sweep: $(VENV)/.installed-dev toolchain ## torch's operator and module databases under shadow (hours); SWEEP="--device cuda --jobs 8"
	$(BIN)/python -m tests.sweep --write-docs $(SWEEP)

environment: $(VENV)/.installed-dev ## only install, for example with TORCH=2.15.0

lint: $(VENV)/.installed-dev ## ruff and mypy --strict
ifeq ($(TORCH),)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
else
	@echo "lint: left out, because mypy would read the types of torch $(TORCH)"
endif

format: $(VENV)/.installed-dev ## fix what ruff can fix
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/.installed-dev ## the documentation as a web site, in site/
	$(BIN)/mkdocs build --quiet

clean: ## remove build output and tool caches; .venv and recorded runs stay
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# --- the test run -------------------------------------------------------------------------------
# One shell, so that all processes share one compile cache: empty at the start (a test must not pass
# thanks to yesterday's cache), shared within (its precompiled headers are slow to build), then gone.
# TMPDIR, because Inductor keeps those headers below it, wherever TORCHINDUCTOR_CACHE_DIR points.
# Many tests need an empty cache of their own: for them, tests/support/compile_once is a g++ that builds nothing twice.
# Inductor's check of vector instructions is done once for all processes: tests/support/vector_instructions.py.
# The order is shuffled: `make test SEED=7` has another one. Long files come first; tests/support/distribution.py has their names.

JOBS       ?= $(shell n=$$(nproc); echo $$((n < 4 ? n : 4)))
SEED       ?= 137037791
MARKS      := not slow
BENCHMARKS :=
test-all: MARKS      := slow or not slow
test-all: BENCHMARKS := $(filter-out benchmarks/_%,$(wildcard benchmarks/*.py))
PYTEST      = $(BIN)/python -m pytest -m "$(MARKS)" -n $(JOBS) --dist loadscope --no-loadscope-reorder --randomly-seed=$(SEED)

define run-tests
@cache=$$(mktemp -d "$${TMPDIR:-/tmp}/kernelscope-cache.XXXXXX"); trap 'rm -rf "$$cache" || true' EXIT; \
export TMPDIR="$$cache" TORCHINDUCTOR_CACHE_DIR="$$cache/inductor" TRITON_CACHE_DIR="$$cache/triton"; \
export XDG_CACHE_HOME="$$cache/xdg"; path="$$PATH"; \
sh tests/support/compile_once/install.sh "$$cache/compiler"; export PATH="$$cache/compiler/bin:$$path"; \
TORCHINDUCTOR_VEC_ISA_OK="$$($(BIN)/python tests/support/vector_instructions.py || true)"; export TORCHINDUCTOR_VEC_ISA_OK; \
set -x; \
$(PYTEST) tests/tiny; \
passed=true; \
$(PYTEST) tests/unit tests/gcu tests/gpu tests/browser tests/integration || passed=false; \
$(PYTEST) --dist worksteal tests/interpreted || passed=false; \
awk '{ for (i = 2; $$(i + 1) != "ms"; ++i); how = $$1 == "not" ? "not kept" : $$1; calls[how]++; ms[how] += $$i } \
  END { for (how in calls) printf "g++: %d %s, %d CPU seconds\n", calls[how], how, ms[how] / 1000 }' \
  "$$cache/compiler/store/log" || true; \
$$passed; \
PATH="$$path"; \
$(foreach benchmark,$(BENCHMARKS),$(BIN)/python $(benchmark) --write-docs;)
endef

# --- installation -------------------------------------------------------------------------------

# Another torch brings the triton that it needs; the interpreter of triton 3.6 needs numpy before 2.4.
UNPINNED := $(if $(filter-out $(PINNED),$(TORCH)),^(torch|torchvision|triton)==,^$$)
UNPINNED := $(if $(filter 2.11.%,$(TORCH)),^(torch|torchvision|triton|numpy)==,$(UNPINNED))
NUMPY    := $(if $(filter 2.11.%,$(TORCH)),'numpy<2.4')

.PHONY: same-python
same-python:
	@test -n "$(MINOR)" || { echo "PYTHON=$(PYTHON) does not start; name another one" >&2; exit 1; }
	@test ! -x $(BIN)/python || $(BIN)/python -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "$(MINOR)")' || \
	  { echo "$(VENV) was made with another Python than $(PYTHON), which is $(MINOR): remove it," \
	  "or say TORCH=$(PINNED) for an environment of its own" >&2; exit 1; }

$(VENV)/.installed-run: pyproject.toml constraints.txt | same-python
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "kernelscope needs Python 3.11 or newer; try: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	grep -vE '$(UNPINNED)' constraints.txt >$(VENV)/constraints.txt
	$(BIN)/pip install -c $(VENV)/constraints.txt torch==$(or $(TORCH),$(PINNED)) 'triton; sys_platform == "linux"' $(NUMPY)
	$(BIN)/pip install -c $(VENV)/constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-run
	$(BIN)/pip install -c $(VENV)/constraints.txt -e '.[dev]'
	@touch $@

# torch is named again, so that the torchvision that fits it is chosen.
$(VENV)/.installed-models: $(VENV)/.installed-dev
	$(BIN)/pip install -c $(VENV)/constraints.txt torch==$(or $(TORCH),$(PINNED)) -e '.[models]'
	@touch $@

# Packages of trainers and trackers bring many others: they get an environment of their own.
$(INTEGRATIONS)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(INTEGRATIONS)
	grep -v '^pyarrow==' constraints.txt >$(INTEGRATIONS)/constraints.txt # mlflow wants an older one
	$(INTEGRATIONS)/bin/pip install -c $(INTEGRATIONS)/constraints.txt torch==$(PINNED) 'triton; sys_platform == "linux"'
	$(INTEGRATIONS)/bin/pip install -c $(INTEGRATIONS)/constraints.txt -e '.[dev,integrations]'
	# Of the servers, only what their loaders of plugins import: the rest needs a GPU.
	$(INTEGRATIONS)/bin/pip install --no-deps -c constraints.txt vllm sglang
	$(INTEGRATIONS)/bin/pip install -c $(INTEGRATIONS)/constraints.txt regex orjson psutil pybase64 requests pillow \
	  starlette msgspec pyzmq tqdm ipython pydantic aiohttp
	@touch $@

# Inductor and the gcu backend compile C++ that includes Python.h.
toolchain:
	@command -v $(CXX) >/dev/null || { echo "$(CXX) is missing: torch.compile needs a C++ compiler." \
	  "Debian, Ubuntu: apt-get install g++ | Fedora: dnf install gcc-c++ | conda: conda install gxx" >&2; exit 1; }
	@test -f "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" || \
	  { echo "Python.h is missing: torch.compile needs Python's headers." \
	  "Debian, Ubuntu: apt-get install python3-dev | Fedora: dnf install python3-devel" >&2; exit 1; }

# tests/browser opens pages in a real Chromium; fonts, because a bare machine has none.
BROWSERS := chromium chromium-browser google-chrome google-chrome-stable
browser: ## install Chromium for the tests, where there is none
	@for name in $(BROWSERS); do command -v $$name >/dev/null && exit 0; done; \
	if command -v apt-get >/dev/null && { [ "$$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then \
	  as_root=$$([ "$$(id -u)" = 0 ] || echo sudo -n); export DEBIAN_FRONTEND=noninteractive; set -x; \
	  $$as_root apt-get update -q && \
	  $$as_root apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core; \
	else echo "Chromium is missing: the tests of the report need a real browser." \
	  "Debian: apt-get install chromium | Fedora: dnf install chromium" >&2; exit 1; fi
