# `make` alone lists what there is. Every target sets up what it needs, and does nothing where nothing is to do.
# ARGS goes to the command behind the target: make nightly ARGS="--traces my.jsonl", make test ARGS="-k lake".
SHELL := /bin/bash
BIN := .venv/bin
RUN := deploy/setup.sh run
COMPILE := $(BIN)/uv pip compile --upgrade --no-header --no-annotate --no-emit-index-url --no-emit-find-links --quiet
LINUX := --python-version 3.12 --python-platform x86_64-manylinux_2_34

.DEFAULT_GOAL := help
.PHONY: help nightly test check setup doctor bench lock clean

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-8s  %s\n", $$1, $$2 }'

nightly: setup ## one night on the example: ingest, train, evaluate, promote, report
	@$(RUN) $(BIN)/nightschool nightly --config examples/first_night/nightschool.toml $(ARGS)

test: check ## everything the project promises, tested; without Docker those tests are skipped
	@deploy/setup.sh --optional docker image
	@$(RUN) $(BIN)/python -m pytest $(ARGS)

check: ## lint and types
	@deploy/setup.sh env
	@$(BIN)/ruff check .
	@$(BIN)/mypy

setup: ## Python environment, Docker engine, base image
	@deploy/setup.sh env docker image

doctor: ## what is here, what is missing, and what to do about it
	@deploy/setup.sh env
	@$(RUN) $(BIN)/nightschool doctor $(ARGS)

bench: setup ## every benchmark, the short way
	@for script in benchmarks/*.py; do $(RUN) $(BIN)/python "$$script" --quick $(ARGS) || exit 1; done

lock: ## pin the newest allowed versions in requirements/*.txt
	@deploy/setup.sh env
	$(COMPILE) pyproject.toml --universal --output-file requirements/pipeline.txt
	$(COMPILE) --group dev --universal -c requirements/pipeline.txt --output-file requirements/dev.txt
	$(COMPILE) pyproject.toml --extra jax --universal -c requirements/pipeline.txt --output-file requirements/jax.txt
	$(COMPILE) pyproject.toml --extra trackers --universal -c requirements/pipeline.txt --output-file requirements/trackers.txt
	$(COMPILE) requirements/harbor.in --universal --python-version 3.12 --output-file requirements/harbor.txt
	$(COMPILE) requirements/engine-vllm.in $(LINUX) --output-file requirements/engine-vllm.txt
	$(COMPILE) requirements/engine-fsdp.in $(LINUX) --override requirements/engine-fsdp.overrides.txt --output-file requirements/engine-fsdp.txt

clean: ## remove what make made, except your data in var/
	rm -rf .venv .venv-uv .setup.lock build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './var/*' -prune -exec rm -rf {} +
