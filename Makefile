# Two commands for a newcomer: `make demo` and `make test`. Each does all its own set-up.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.haltsweep-ready
PARALLEL := --numprocesses auto --dist loadfile

.PHONY: demo test check format bench clean

demo: $(READY)  ## search and confirm five arms on ListOps, then show the ablation table
	$(BIN)/haltsweep launch experiments/quickstart.yaml --continue

test: $(READY)  ## all tests, the fast ones first; then every spec: planned, proved, trained for one step
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow"
	$(BIN)/python -m pytest $(PARALLEL) -m slow
	$(BIN)/python -m pytest $(PARALLEL) --haltsweep experiments

check: $(READY)  ## what a reviewer need not look for
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive orchestrator search_spaces trainables

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## every benchmark, one Markdown table each
	for script in tests/benchmarks/[a-z]*.py; do $(BIN)/python -m tests.benchmarks.$$(basename $$script .py) || exit 1; done

clean:
	rm -rf $(VENV) build dist *.egg-info

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
