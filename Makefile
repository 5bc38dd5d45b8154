# Needs only python3 (3.11 to 3.13), make and a package index. Everything is installed into .venv at
# the versions of constraints.txt: the first call takes minutes, the next ones a moment.
#
#   make serve ARGS="--port 50052"      pass options on to `dragoman serve`
#   make test ARGS="tests/unit -x"      pass options on to pytest
#   make PYTHON=python3.12 test         another interpreter (after `make clean`)

PYTHON ?= python3
ARGS ?=
# Empty: a checker that is not installed is passed over, aloud.
REQUIRE_TOOLS ?= 1

venv := .venv
python := $(venv)/bin/python
# `python -m pip` rather than `pip`: its first line holds an absolute path, which may be too long.
pip_install := $(python) -m pip install --constraint constraints.txt
# Built by the locked hatchling rather than by the newest one in an isolated environment.
install_this := $(pip_install) --no-build-isolation --editable
# The project's one version: images take it from here.
version := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' proto/dragoman/__init__.py)
docker_build = DOCKER_BUILDKIT=1 docker build --file docker/Dockerfile \
    --build-arg VERSION=$(version) --build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null)
torch := $(shell sed -n 's/^torch==//p' constraints.txt)

# onnxruntime reads it when it is imported.
export ORT_DISABLE_TELEMETRY := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help serve test check check-manifests test-clients test-containers image image-gpu proto bench bench-engine bench-full bench-overload soak venv lock lock-images clean

help:  ## show these targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 24

serve: $(venv)/.serve  ## start the server (gRPC 127.0.0.1:50051, metrics 127.0.0.1:9464)
	@$(venv)/bin/dragoman serve $(ARGS)

test: $(venv)/.dev  ## run the tests
	$(python) -m pytest $(ARGS)

check: $(venv)/.dev  ## lint, formatting, types, who may import whom
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	$(python) -m mypy
	$(venv)/bin/lint-imports --no-logo

check-manifests: $(venv)/.manifests  ## check what is in docker/: images, compose, rules, Kubernetes
	DRAGOMAN_REQUIRE_TOOLS=$(REQUIRE_TOOLS) $(python) -m pytest tests/containers/static $(ARGS)

test-containers: $(venv)/.manifests  ## check them, then build and run them (Debian, root; minutes)
	DRAGOMAN_REQUIRE_TOOLS=1 $(python) -m pytest -m "containers or not containers" \
	    tests/containers/static tests/containers/live $(ARGS)

test-clients: $(venv)/.manifests  ## run the examples in other languages (needs Node, npm, its registry)
	DRAGOMAN_REQUIRE_TOOLS=$(REQUIRE_TOOLS) $(python) -m pytest -m clients tests/clients $(ARGS)

image:  ## build the image for CPUs, dragoman:cpu (ARGS="--secret ...": see docker/Dockerfile)
	$(docker_build) --target cpu --tag dragoman:cpu --tag dragoman:$(version)-cpu $(ARGS) .

image-gpu:  ## build the image for NVIDIA GPUs, dragoman:gpu
	$(docker_build) --target gpu --tag dragoman:gpu --tag dragoman:$(version)-gpu $(ARGS) .

proto: $(venv)/.dev  ## generate the stubs from proto/dragoman/v1/*.proto
	$(python) proto/generate.py

bench: $(venv)/.dev  ## measure against CTranslate2 (under 15 minutes, on a machine left alone)
	$(python) -m bench.suite.run quick $(ARGS)

bench-engine: $(venv)/.dev  ## the engine's ratios to CTranslate2, with a floor for each (an hour)
	$(python) -m bench.engine.run $(ARGS)

bench-overload: $(venv)/.dev  ## what the server does at 150 % of what it carries (5 minutes)
	$(python) -m bench.suite.run overload $(ARGS)

bench-full: $(venv)/.dev  ## measure everything (80 minutes; ARGS=--thorough: 5 hours; goes on where it was)
	$(python) -m bench.suite.run full $(ARGS)

soak: $(venv)/.dev  ## an hour at 90 % of the capacity: memory and latency must not drift
	$(python) -m bench.soak.run $(ARGS)

venv: $(venv)/.dev  ## only create .venv, with everything that test and check need

lock: $(venv)/.created  ## resolve constraints.txt anew; ARGS=--upgrade moves to newer versions
	$(python) -m pip install --quiet uv
	@# CUDA's packages are left out: no constraint on what may never be installed here. torch stays
	@# where it is: move it by hand, to a version that has a CPU build.
	echo "torch==$(torch)" >$(venv)/torch.txt
	cp constraints.txt $(venv)/lock.txt
	$(venv)/bin/uv pip compile pyproject.toml --extra cpu --extra dev --extra manifests --universal \
	    --group lock --python-version 3.11 --fork-strategy fewest $(ARGS) \
	    --constraint $(venv)/torch.txt --no-annotate --no-header --output-file $(venv)/lock.txt
	{ grep '^#' constraints.txt; grep -vE '^(cuda-|nvidia-|triton=)' $(venv)/lock.txt; } \
	    >$(venv)/constraints.txt
	mv $(venv)/constraints.txt constraints.txt

lock-images: $(venv)/.created  ## lock what the images install (docker/requirements); after `make lock`
	@$(python) -m pip install --quiet uv
	docker/requirements/lock.sh $(venv)/bin/uv

clean:  ## remove .venv, caches and builds
	rm -rf $(venv) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# --- the environment: one, growing ---------------------------------------------------------------

$(venv)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
	    echo "dragoman needs Python 3.11, 3.12 or 3.13, but $(PYTHON) is: $$($(PYTHON) --version 2>&1)." \
	        "Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(venv)
	@touch $@

# What serving, translating, evaluating and load testing need: no torch.
$(venv)/.serve: $(venv)/.created pyproject.toml constraints.txt
	$(pip_install) hatchling editables
	@# On some platforms (Linux on ARM) hdrhistogram has to be compiled: serving does without it.
	$(install_this) '.[cpu,evaluate,bench]' || $(install_this) '.[cpu,evaluate]'
	@touch $@

# PyTorch's builds for Linux that carry no CUDA have "+cpu" in their version and lie on an index of
# their own: pip finds them where it is configured to, and uv knows the place by itself.
$(venv)/.torch: $(venv)/.serve
ifeq ($(shell uname -s),Linux)
	@echo "Installing a CPU build of torch $(torch)"
	@$(python) -m pip install --no-deps 'torch==$(torch)+cpu' 2>$(venv)/torch.log || { \
	    echo "pip is not configured for PyTorch's CPU builds: asking uv"; \
	    $(pip_install) --quiet uv && $(venv)/bin/uv pip install --python $(python) \
	        --no-deps --torch-backend cpu 'torch==$(torch)'; } || { \
	    echo "No CPU build of torch $(torch) could be had. Not from pip:" >&2; \
	    cat $(venv)/torch.log >&2; \
	    echo "and not from uv (above). Tell pip where one is, for example by PIP_FIND_LINKS." >&2; \
	    exit 1; }
else
	$(pip_install) 'torch==$(torch)'
endif
	@touch $@

$(venv)/.dev: $(venv)/.torch
	$(install_this) '.[cpu,dev]'
	@if $(python) -m pip list --format freeze | grep -iE '^(cuda-|nvidia-|triton=|onnxruntime-gpu=)'; then \
	    echo "These packages belong to a GPU and may not stand in $(venv): run 'make clean'," \
	        "then look for what brought them." >&2; exit 1; fi
	$(python) -m pip check
	@touch $@

$(venv)/.manifests: $(venv)/.dev
	$(install_this) '.[cpu,dev,manifests]'
	@touch $@
