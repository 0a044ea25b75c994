# goalward: `make demo` and `make test` set everything up and run. `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PARALLEL := -n 2 --dist worksteal

.PHONY: help demo test test-all lint gl bench-collect bench-read bench-embed bench-train bench-plan docs clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(INSTALLED) gl ## from nothing to a comparison of GC-IDM and CEM on Two-Room (under ten minutes on two cores)
	$(BIN)/goalward run two-room --preset cpu

test: $(INSTALLED) gl lint ## lint, types and the tests (under ten minutes on two cores)
	$(BIN)/python -m pytest -m "not slow" $(PARALLEL)

test-all: $(INSTALLED) gl lint ## the same, with the slow tests
	$(BIN)/python -m pytest $(PARALLEL)

lint: $(INSTALLED) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

gl: $(INSTALLED) ## install MuJoCo's off-screen GL library, if it is missing and we may
	@PYTHON=$(BIN)/python sh scripts/ensure_gl.sh

# Each prints the ratios of one run. Run it as `python -m benchmarks.NAME --help` to see its options.
bench-collect: $(INSTALLED) gl ## collection speed, compared with stable-worldmodel
	$(BIN)/python -m benchmarks.collect

bench-read: $(INSTALLED) ## speed of reading random windows, compared with stable-worldmodel
	$(BIN)/python -m benchmarks.read

bench-embed: $(INSTALLED) ## embedding speed, compared with the bare encoder
	$(BIN)/python -m benchmarks.embed

bench-train: $(INSTALLED) ## training speed of GC-IDM, compared with an ordinary DataLoader
	$(BIN)/python -m benchmarks.train

bench-plan: $(INSTALLED) ## planning speed of CEM, compared with stable-worldmodel and bare arithmetic
	$(BIN)/python -m benchmarks.plan

docs: $(INSTALLED) gl ## write the generated pages and the pictures again
	$(BIN)/python docs/build.py

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "goalward needs Python 3.10 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[all,dev]' -c constraints.txt
	@touch $@
