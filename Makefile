# The same names are used by people, by CI and by pre-commit. `make help` lists them.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
RUNS   ?= runs/demo
SCHEDULES ?= 20
RELEASE ?= .venv-release
# One more than cores: a sixth of the tests' time passes in waiting, for processes and leases.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# Most modules of the packages are never imported: the first import compiles those that are.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
PROTOS := $(wildcard proto/modnorm/v1/*.proto)

# The released torch wheel first: anything else that asks for torch would draw the CUDA build.
TORCH  ?= torch==2.13.0

export HF_HUB_DISABLE_TELEMETRY = 1
# Where it is set, every process would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

# Warnings of vLLM and its dependencies are theirs; one engine at a time in a process. What vLLM and
# Python keep from one process to the next lies in the environment.
VLLM      ?= .venv-vllm
TEST_VLLM := OMP_NUM_THREADS=1 VLLM_CACHE_ROOT="$(abspath $(VLLM))/cache" \
	VLLM_CONFIG_ROOT="$(abspath $(VLLM))/config" \
	$(VLLM)/bin/python -m pytest -q -p tests.garbage --confcutdir=tests/engines -o filterwarnings=

# Why vLLM cannot run here; nothing where it can.
LEFT_OUT  := $(shell $(PYTHON) scripts/check_python.py --vllm 2>&1)

# What oneDNN and torch read to do without AVX-512, bfloat16 products and AMX.
TEST_AVX2 := ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 OMP_NUM_THREADS=1 \
	$(BIN)/python -m pytest -q
AVX2_TESTS := tests/engines/test_slots.py \
	$(addprefix tests/engines/test_transformers_engine.py::test_,answers_do_not_depend_on_the_batch \
	answers_are_those_of_transformers_own_generate) \
	tests/perturbation/test_digests.py tests/perturbation/test_held_tensor.py \
	tests/end_to_end/test_run.py::test_a_run_leaves_results_tables_plots_and_a_report

.PHONY: help setup setup-dev setup-vllm demo test test-main test-avx2 test-vllm chaos lint format typecheck proto proto-check docs docs-serve replication-tables release-check check clean

help:  ## List the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.setup: pyproject.toml constraints.txt
	$(PYTHON) scripts/check_python.py
	$(PYTHON) -m venv $(VENV)
	@echo "torch and the other packages are installed into $(VENV); pip is silent for some minutes"
	$(PIP) $(TORCH)
	$(PIP) -c constraints.txt -e '.[services]'
	@touch $@

$(VENV)/.setup-docs: $(VENV)/.setup
	$(PIP) -c constraints.txt -e '.[docs]'
	@touch $@

# The last line compiles what tests import: else several processes of them do so at once.
$(VENV)/.setup-dev: $(VENV)/.setup
	$(PIP) -c constraints.txt -e '.[services,data,dev]'
	$(BIN)/python -c 'from verification.labs import fork_server; fork_server.import_modules()'
	@touch $@

setup: $(VENV)/.setup  ## Make the virtual environment that runs modnorm
setup-dev: $(VENV)/.setup-dev  ## The same, with what tests, lint and code generation need

$(VLLM)/.setup: tests/engines/vllm/requirements.txt
	$(PYTHON) -m venv $(VLLM)
	echo '*' > $(VLLM)/.gitignore
	$(VLLM)/bin/pip install --quiet --disable-pip-version-check --no-compile --no-deps $(TORCH)
	$(VLLM)/bin/pip install --quiet --disable-pip-version-check --no-compile --no-deps -r $<
	@touch $@

ifeq ($(LEFT_OUT),)
setup-vllm: $(VLLM)/.setup
test-vllm: setup-vllm
	$(TEST_VLLM) tests/engines/vllm tests/engines/test_conformance.py tests/engines/test_layouts.py
else
setup-vllm test-vllm:
	@echo "$@ is left out: $(LEFT_OUT)"
endif

setup-vllm:  ## Make an environment of its own for vLLM's CPU build (2.3 GB)

demo: setup  ## Search, select and vote with the bundled model: both methods, two minutes
	$(BIN)/modnorm run examples/demo-randopt.yaml --out $(RUNS)/randopt
	$(BIN)/modnorm run examples/demo-modular-norm.yaml --out $(RUNS)/modular_norm
	$(BIN)/modnorm compare $(RUNS)/modular_norm $(RUNS)/randopt

# Each waits for a quarter of its time: for processes, leases and the disk.
test: setup-dev  ## Run every test: test-main beside test-vllm and test-avx2
	$(MAKE) --jobs=2 --output-sync=line test-main test-vllm test-avx2

# Files start in this order: what takes longest must not start last. pytest would take a folder
# among them in the place of the folder above it, so each is named once.
FIRST := $(addprefix tests/,verification end_to_end training web suites services engines)

test-main: setup-dev  ## Install Postgres, Redis and Chromium where missing; run all tests but those of vLLM
	scripts/ensure-servers
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --maxprocesses 4 \
		--dist loadfile --no-loadscope-reorder $(FIRST) \
		$(filter-out $(FIRST),$(patsubst %/,%,$(wildcard tests/*/)) $(wildcard tests/test_*.py))

# Without AVX-512 this CPU is such a machine, and test-main ran there.
test-avx2: setup-dev  ## Run the engine tests and a small run as on a CPU with AVX2 alone
	@case "$$($(BIN)/python -c 'import torch; print(torch.backends.cpu.get_cpu_capability())')" in \
	AVX512*) $(TEST_AVX2) $(AVX2_TESTS) ;; \
	*) echo "test-avx2: this CPU has no AVX-512, so the other tests ran without it" ;; \
	esac

chaos: setup-dev  ## Break a lab at random: SCHEDULES=20, SEED=of the first, FAULTS=only these
	scripts/ensure-servers
	$(BIN)/python -m verification.chaos --schedules $(SCHEDULES) $(if $(SEED),--seed $(SEED)) \
		$(if $(FAULTS),--faults $(FAULTS))

test-vllm:  ## Run the engine tests against the real vLLM, on the CPU (2.3 GB)

lint: setup-dev  ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup-dev  ## Mend style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: setup-dev  ## Check types (mypy, strict)
	$(BIN)/mypy

proto: setup-dev  ## Generate modnorm/v1 from proto/
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m grpc_tools.protoc -I proto \
		--python_out=. --grpc_python_out=. --mypy_out=quiet:. --mypy_grpc_out=quiet:. $(PROTOS)

proto-check: proto  ## Fail when modnorm/v1 is not what proto/ generates
	git diff --exit-code --stat -- modnorm/v1
	@new=$$(git ls-files --others --exclude-standard -- modnorm/v1); \
		[ -z "$$new" ] || { echo "generated, but not in git:" $$new >&2; exit 1; }

# `python -m` puts this folder on the path, where scripts/docs_hooks.py finds its imports.
docs: $(VENV)/.setup-docs  ## Build the docs site into build/docs; broken links fail
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

replication-tables: setup  ## Build tables, figures and claims from replication/cells
	$(BIN)/python -m scripts.replication tables

docs-serve: $(VENV)/.setup-docs  ## Show the docs site on 127.0.0.1:8000 and rebuild it on changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve --strict

$(RELEASE)/.setup: scripts/release-requirements.txt
	$(PYTHON) -m venv $(RELEASE)
	echo '*' > $(RELEASE)/.gitignore
	$(RELEASE)/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

release-check: $(RELEASE)/.setup  ## Build sdist, wheel and SBOM into dist/, install the wheel and run the demo
	scripts/release-check $(RELEASE) $(TORCH)

# One core sets up, checks and runs test-main; the other one starts with vLLM and its tests.
check:  ## Everything that CI runs
	$(MAKE) --jobs=2 --output-sync=line proto-check lint typecheck test-main test-vllm test-avx2

# Among such goals, code is generated before it is read.
lint typecheck test-main test-avx2: | $(filter proto-check,$(MAKECMDGOALS))

clean:  ## Remove the environment, caches and runs
	rm -rf $(VENV) $(VLLM) $(RELEASE) runs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
