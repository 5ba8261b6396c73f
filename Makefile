# Two commands matter: `make demo` and `make test`. Each makes .venv first, from pinned versions.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STUDY ?= examples/digits.yaml
PYTEST ?= $(BIN)/python -m pytest
# A worker per core; each takes up to 2 GB. PARALLEL= runs one after the other, with -x and --pdb.
PARALLEL ?= --numprocesses logical --maxprocesses 8 --dist worksteal
# Of the contract every operation's test has the same name, and `loadfile` would run the last of them alone.
OF_ONE_PROCESS := tests/unit tests/property tests/statistical tests/contract
# Two files at a time: whole services wait more than they work, but more of them would starve each other.
SIDE_BY_SIDE ?= --numprocesses 2 --dist loadfile
BENCH ?= --quick
TORCH_VERSION := 2.13.0
# For its interpreter, where there is no GPU; torch's CUDA build brings its own.
TRITON_VERSION := 3.9.0
# What only torch's CUDA build needs. `torch` pins these itself; the lock stays free of them.
CUDA_PACKAGES := torch triton cuda-bindings cuda-pathfinder cuda-toolkit $(addprefix nvidia-,\
	cublas cuda-cupti cuda-nvrtc cuda-runtime cudnn-cu13 cufft cufile curand cusolver cusparse \
	cusparselt-cu13 nccl-cu13 nvjitlink nvshmem-cu13 nvtx)

COMPILE = uv pip compile pyproject.toml --quiet --python-version 3.11 --universal --generate-hashes --no-annotate \
	--no-header --no-emit-index-url --no-emit-find-links $(addprefix --no-emit-package ,$(CUDA_PACKAGES))

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-heavy test-crashes test-faults test-long test-images test-gpu test-kernels test-accuracy test-all fuzz mutants faults-privacy screenshots bench results lint fmt types arch lock clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

setup: $(VENV)/.installed  ## Make .venv and install the pinned versions

# The stamp holds on to the lock, the package list and the kernels: what has changed is installed again.
$(VENV)/.installed: requirements.lock pyproject.toml deploy/install.sh $(wildcard tan_core/engine/native/*.[ch])
	PYTHON="$(PYTHON)" VENV="$(VENV)" TORCH_VERSION="$(TORCH_VERSION)" bash deploy/install.sh
	@touch $@

demo: setup  ## Run one study end to end on this machine (STUDY=examples/mnist.yaml for MNIST)
	$(BIN)/python -m service.cli.demo $(STUDY)

test: setup  ## The default tests: fast, real PostgreSQL, no GPU, on every core
	$(PYTEST) $(PARALLEL)

test-slow: setup  ## What `make test` leaves out and needs one process: statistics, large models, long arithmetic, the contract; on every core
	$(PYTEST) $(PARALLEL) -m "(slow or statistical) and not (gpu or long)" $(OF_ONE_PROCESS)

test-heavy: setup  ## What else it leaves out: Ray, browser, whole studies; SIDE_BY_SIDE= one by one
	$(PYTEST) $(SIDE_BY_SIDE) -m "(slow or ray or browser or statistical) and not (faults or gpu or long)" $(addprefix --ignore=,$(OF_ONE_PROCESS))

test-crashes: setup  ## Of the faults those that every change has to outlive: kill -9, lost answers, full disks
	$(PYTEST) $(SIDE_BY_SIDE) -m crash $(addprefix --ignore=,$(OF_ONE_PROCESS))

test-faults: setup  ## The other faults: hangs, jumping clocks, cut networks and more kills under a running service
	$(PYTEST) $(SIDE_BY_SIDE) -m "faults and (slow or ray or browser) and not (crash or gpu or long)" $(addprefix --ignore=,$(OF_ONE_PROCESS))

test-long: setup  ## Minutes each: 10,000 requests of the contract, hosts cut off and killed
	$(PYTEST) -m long

fuzz: setup  ## 10,000 requests of every operation of the API and 10,000 along its links, counted (FUZZ_CASES=)
	$(PYTEST) -m long -s tests/contract

mutants: setup  ## Seed faults in the ledger's SQL: the tests must find each
	$(BIN)/python -m tests.mutants

faults-privacy: setup  ## Seed faults into private runs: the self-test must find each
	$(BIN)/python -m tests.privacy_faults

screenshots: setup  ## Take the pictures of docs/guide.md from a service that runs real studies
	$(BIN)/python -m tests.screenshots

test-images: setup  ## Build both images with buildah and start docker-compose.yml in them, as root (BUILD="--build-arg PYTHON_IMAGE=...")
	@set -e; roots=$$(mktemp -d); trap 'rm -r "$$roots"; buildah rm test-service test-worker >/dev/null' EXIT; \
	for each in service worker; do \
		buildah build --isolation chroot --layers $(BUILD) --file deploy/Dockerfile --target $$each --tag localhost/tan-search-$$each:test .; \
		ln -s "$$(buildah mount "$$(buildah from --name test-$$each localhost/tan-search-$$each:test)")" "$$roots/$$each"; \
	done; \
	TAN_TEST_IMAGES="$$roots" $(PYTEST) -m long tests/e2e/test_topology.py

test-gpu: setup  ## The engine on an NVIDIA GPU
	$(PYTEST) -m gpu tests/gpu

$(VENV)/triton/.installed: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --only-binary=:all: --target $(VENV)/triton triton==$(TRITON_VERSION)
	@touch $@

test-kernels: $(VENV)/triton/.installed  ## The kernels of a GPU, by Triton's interpreter on this processor (1 GB on disk)
	TRITON_INTERPRET=1 PYTHONPATH=$(VENV)/triton $(PYTEST) -m gpu tests/gpu/test_kernels.py tests/gpu/test_books.py

test-accuracy: setup  ## Published accuracies on real data, minutes each (TAN_DATA_DIR)
	$(PYTEST) -m accuracy

test-all: test test-slow test-heavy test-crashes test-faults test-long test-accuracy  ## Every test that this machine can run

bench: setup  ## Every benchmark, quickly (BENCH= for the full size)
	@set -e; for each in $(filter-out benchmarks/results.py,$(wildcard benchmarks/[a-z]*.py)); do echo "$$each"; $(BIN)/python $$each $(BENCH); done

results: setup  ## Make docs/results.md and its pictures from what benchmarks/results holds
	$(BIN)/python benchmarks/results.py

lint: setup  ## Formatting, lint, types, import contracts, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright
	$(BIN)/codespell

fmt: setup  ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: setup  ## Types only
	$(BIN)/basedpyright

arch: setup  ## Import contracts only
	$(BIN)/lint-imports

lock:  ## Resolve the locks again (needs uv); LOCK_ARGS="--upgrade" takes newer releases
	$(COMPILE) --extra all --group dev $(LOCK_ARGS) -o requirements.lock
	$(COMPILE) --extra service --extra embedded --extra otel -c requirements.lock -o deploy/requirements-service.lock
	$(COMPILE) --extra worker -c requirements.lock -o deploy/requirements-worker.lock
	echo "# What makes the images' wheel, as in requirements.lock." > deploy/requirements-build.lock
	sed -n '/^setuptools==/,/[^\\]$$/p' requirements.lock >> deploy/requirements-build.lock

clean:  ## Remove the virtual environment and everything that was built
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build *.egg-info
