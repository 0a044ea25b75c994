# goalward: `make demo` and `make test` set everything up and run. `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PARALLEL := -n 2 --dist worksteal

.PHONY: help demo test test-all lint gl floors bench-collect bench-read bench-embed bench-train bench-plan bench-world bench-world-curve bench-controllers bench-compare main-tables bench-cost bench-upper-bound docs clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(INSTALLED) gl ## from nothing to GC-IDM beside CEM on Two-Room (under ten minutes on two cores)
	$(BIN)/goalward run two-room --preset cpu

test: $(INSTALLED) gl lint ## lint, types and the test suite (under ten minutes on two cores)
	$(BIN)/python -m pytest -m "not slow" $(PARALLEL)

test-all: $(INSTALLED) gl lint ## as `make test`, with the slow tests
	$(BIN)/python -m pytest $(PARALLEL)

lint: $(INSTALLED) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

gl: $(INSTALLED) ## MuJoCo's off-screen GL library, installed when missing and allowed
	@PYTHON=$(BIN)/python sh scripts/ensure_gl.sh

floors: $(INSTALLED) gl ## measure floors, replay and exactness; writes docs/FLOORS.md
	$(BIN)/python -m benchmarks.floors

bench-collect: $(INSTALLED) gl ## collection speed beside stable-worldmodel's own, in one run
	$(BIN)/python -m benchmarks.collect

bench-read: $(INSTALLED) ## random windows a second beside stable-worldmodel's reader, in one run
	$(BIN)/python -m benchmarks.read

bench-embed: $(INSTALLED) ## embedding speed beside the bare encoder, in one run
	$(BIN)/python -m benchmarks.embed

bench-train: $(INSTALLED) ## GC-IDM training speed beside an ordinary DataLoader, in one run
	$(BIN)/python -m benchmarks.train

bench-plan: $(INSTALLED) ## CEM planning speed beside stable-worldmodel's, and beside bare arithmetic, in one run
	$(BIN)/python -m benchmarks.plan

PRESET ?= cpu
bench-world: $(INSTALLED) gl ## world models of all tasks from nothing (PRESET=cpu or cpu-long); writes results/world
	$(BIN)/python -m benchmarks.world --preset $(PRESET)
	$(BIN)/python docs/build.py

bench-world-curve: $(INSTALLED) gl ## probe errors over the time of training (Push-T, cpu-long; hours); writes results/world-curve
	$(BIN)/python -m benchmarks.world_curve
	$(BIN)/python docs/build.py

bench-compare: $(INSTALLED) gl ## all methods on the same pairs (PRESET as above; hours); writes results/compare
	$(BIN)/python -m benchmarks.compare --preset $(PRESET)
	$(BIN)/python docs/build.py

main-tables: $(INSTALLED) ## put what bench-compare measured into the experiments' tables that have the same cells
	$(BIN)/python -m benchmarks.main_tables --preset $(PRESET)
	$(BIN)/python docs/build.py

bench-cost: $(INSTALLED) gl ## what a decision costs, alone and in batches, beside CEM in one run; writes results/cost
	$(BIN)/python -m benchmarks.cost
	$(BIN)/python docs/build.py

bench-upper-bound: $(INSTALLED) gl ## GC-IDM on the true state (PRESET as above); writes results/upper-bound
	$(BIN)/python -m benchmarks.upper_bound --preset $(PRESET)
	$(BIN)/python docs/build.py

bench-controllers: $(INSTALLED) gl ## controllers on those world models (PRESET as above); writes results/controllers
	$(BIN)/python -m benchmarks.controllers --preset $(PRESET)
	$(BIN)/python docs/build.py

docs: $(INSTALLED) gl ## write the generated pages and the pictures anew
	$(BIN)/python docs/build.py

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "goalward needs Python 3.10 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[all,dev]' -c constraints.txt
	@touch $@
