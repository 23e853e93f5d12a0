# New contributors need two commands: `make demo` and `make test`. Each sets up its environment by itself.
# Prefer the Python of the distribution, which is compiled with profile-guided optimisation. Without it, as with a default
# build of pyenv, tests took a quarter longer. PyTorch's compiler needs the headers.
USABLE := import os, sys, sysconfig, ensurepip, venv; \
	sys.exit(sys.version_info < (3, 11) or not os.path.isfile(sysconfig.get_path("include") + "/Python.h"))
ifndef PYTHON
PYTHON := $(shell /usr/bin/python3 -c '$(USABLE)' 2>/dev/null && echo /usr/bin/python3 || echo python3)
endif
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.haltsweep-ready
# pip compiles all modules one after the other, even unused ones. Python compiles the modules skipped here when it imports
# them.
UNUSED := /tests?/|/testing/_internal/|/sympy/|/botocore/
PARALLEL := --numprocesses auto --dist worksteal
# Slow tests wait for processes, servers and Ray. One additional worker uses these waits. A second one would not pay: each
# worker takes half a minute of processor time to collect all tests and to import their modules.
WAITING := --numprocesses $(shell $(PYTHON) -c 'import os; print(min(8, 1 + (os.cpu_count() or 1)))') --dist worksteal

# Let the processes that tests start reuse compiled modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all docs search check types style format bench clean

# Draw the seed once; make prints it with the commands that it runs.
SEED := $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')

demo: $(READY)  ## search and confirm five arms on ListOps, then show the ablation table
	$(BIN)/haltsweep launch experiments/quickstart.yaml --continue

test: $(READY)  ## what every change must pass: all tests but the slow ones; four to nine minutes on two cores
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow"

test-all: $(READY)  ## the gate: all tests, and every spec is planned, proved and trained for one step
	$(BIN)/python -m pytest $(WAITING) --haltsweep tests experiments

docs: $(READY)  ## the documentation site, in docs/_build; a warning is an error
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build

search: $(READY)  ## properties on many random examples, for hours; to see them again: make search SEED=...
	$(BIN)/python -m pytest $(PARALLEL) -m hypothesis --hypothesis-profile=thorough --hypothesis-seed=$(SEED) --timeout=0

check: types style  ## what a reviewer need not look for; side by side with --jobs 2

types: $(READY)
	$(BIN)/mypy

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive orchestrator search_spaces trainables
	$(BIN)/codespell *.md docs experiments haltsweep orchestrator search_spaces trainables

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## every benchmark, one Markdown table each
	for script in tests/benchmarks/[a-z]*.py; do $(BIN)/python -m tests.benchmarks.$$(basename $$script .py) || exit 1; done

clean:
	rm -rf $(VENV) build dist *.egg-info

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --upgrade pip
	$(BIN)/python -m pip install -qq --no-compile --constraint constraints.txt --editable '.[dev,docs]'
	-$(BIN)/python -m compileall -qq -j 0 -x '$(UNUSED)' $(VENV)/lib
	touch $@
