# Two commands do everything: `make demo` and `make test`. Both create .venv and install what they need first.

# 3.11 first: PyTorch's pinned CPU build is small there and a large CUDA build elsewhere.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p >/dev/null 2>&1 && \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: help demo test test-all test-docs docs docs-serve test-sorrel torture lint bench clean
help:
	@echo "make demo      train agents for a minute and see what they learned"
	@echo "make test      lint and test (make test-all adds the slow tests)"
	@echo "make docs      build the documentation into build/site (make docs-serve shows it)"
	@echo "make test-docs run every block of the documentation, and build it"
	@echo "make test-sorrel  test against the real sorrel, in an environment of its own (Python 3.12)"
	@echo "make torture   kill, damage and misuse it many times over (hours; TORTURE="--scale 0.1" for less)"
	@echo "make lint      format check, lint, types"
	@echo "make bench     measure the rungs; prints a table"
	@echo "make clean     remove .venv and caches"

demo: .venv/core
	@$(BIN)/xladder train treasurehunt --preset demo --rung fused
	@echo
	@echo "Next:    source .venv/bin/activate"
	@echo "         xladder train hypergrid --help     every setting; without --help it trains"
	@echo "         xladder compare treasurehunt       the same experiment on every rung; about five minutes on two cores with PyTorch"
	@echo "         xladder worlds                     what else there is; docs/how-to/bring-your-own.md for a world of your own"

# Tests compile more than they compute. Without XLA's fusion emitters programs take two fifths less time to compile,
# but no longer agree to the last bit across devices, which `make test-all` tests.
test: lint
	XLA_FLAGS="--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false" \
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-all: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Warnings are errors: a page that is in no table of contents, a link that leads nowhere.
docs: .venv/dev
	$(BIN)/python -m sphinx -b html -E -W --keep-going -q docs build/site
	@echo "build/site/index.html"

docs-serve: docs
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000

test-docs: docs
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/test_docs.py tests/test_readme.py tests/test_reference.py \
		tests/test_walks.py tests/test_site.py tests/test_pages.py tests/test_doc_pictures.py tests/test_measured_tables.py

test-sorrel: .venv-sorrel/ready
	.venv-sorrel/bin/python -m pytest -n 2 --dist worksteal tests/sorrel

torture: .venv/dev
	$(BIN)/python -m tests.torture $(TORTURE)

lint: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: .venv/dev
	$(BIN)/python benchmarks/treasurehunt.py
	$(BIN)/python benchmarks/hypergrid.py

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "xladder needs Python 3.11 or newer, and none was found: install one, or name it: make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "$(PYTHON) is not a Python of version 3.11 or newer: name one that is: make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "The virtual environment could not be created: on Debian and Ubuntu, install python3-venv."; exit 1; }

.venv/core: .venv/bin/python pyproject.toml constraints.txt
	@echo "installing xladder into .venv (about a minute, once)"
	@$(PIP) -e . || { echo "The installation failed: the lines above say why. Is the package index reachable?"; exit 1; }
	@touch $@

.venv/dev: .venv/core
	@echo "installing what the tests need into .venv (a few minutes, once)"
	@$(PIP) -e '.[dev]' || { echo "The installation failed: the lines above say why. Is the package index reachable?"; exit 1; }
	@touch $@

# sorrel needs Python 3.12 and an older JAX than the constraints name, so it has an environment of its own.
# Where pip is told of a CPU build of PyTorch (PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL), it is taken instead of the CUDA one:
# PIP_CONSTRAINT names a file with its version, such as `torch==2.11.0+cpu`.
PYTHON312 ?= $(shell for p in python3.12 $${PYENV_ROOT:-$$HOME/.pyenv}/versions/3.12*/bin/python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo $$p && break; done)

.venv-sorrel/ready: pyproject.toml Makefile
	@test -n "$(PYTHON312)" || { echo "sorrel needs Python 3.12, and none was found: install one, or name it: make test-sorrel PYTHON312=/path/to/python3.12"; exit 1; }
	@$(PYTHON312) -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null || { echo "$(PYTHON312) is not a Python of version 3.12 or newer: name one that is: make test-sorrel PYTHON312=/path/to/python3.12"; exit 1; }
	@echo "installing sorrel and xladder into .venv-sorrel (several minutes, once; on Linux PyTorch may bring CUDA, some 3 GB)"
	@$(PYTHON312) -m venv .venv-sorrel || { rm -rf .venv-sorrel; echo "The virtual environment could not be created: on Debian and Ubuntu, install python3.12-venv."; exit 1; }
	@.venv-sorrel/bin/python -m pip --disable-pip-version-check install --quiet sorrel==1.6.0 -e '.[torch,zoo,jaxmarl]' pytest pytest-xdist || { echo "The installation failed: the lines above say why. Is the package index reachable?"; exit 1; }
	@touch $@

clean:
	rm -rf .venv .venv-sorrel build dist .pytest_cache .mypy_cache .ruff_cache
