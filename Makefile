# Tasks of the repository; `make help` lists them. Every task makes or updates the virtual environment first.

.DEFAULT_GOAL := help
SHELL := /bin/sh
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest

# Where machine code is kept, and why not where Numba would keep it.
export NUMBA_CACHE_DIR := $(or $(shell ./scripts/numba-cache),$(error scripts/numba-cache failed))
NUMBA_CACHES := $(patsubst %/,%,$(dir $(NUMBA_CACHE_DIR)))

# Number of test processes; 0 = one process without workers.
JOBS ?= 2
# The first seed and the number of seeds of `make sim` and `make soak`.
START ?= 0

.PHONY: help setup check test servers kubernetes image test-fast bench up run sim soak accept docs pictures lock clean

help: ## list the tasks
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r task text; do \
	  printf '  make %-10s %s\n' "$$task" "$$text"; done

setup: ## make or update .venv from requirements.lock; quick when nothing changed
	@./scripts/setup
	@find "$(NUMBA_CACHES)" -mindepth 1 -maxdepth 1 -mtime +7 -exec rm -rf {} + 2>/dev/null || true

check: setup ## format, lint, types, import contracts (under 30 s)
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@PYTHONPATH=tests $(BIN)/python -m support.source_rules

test: check servers kubernetes ## `check`, then every test, also against real databases and a real Kubernetes
	@$(PYTEST) -n $(JOBS) --dist worksteal

servers: ## install the database servers that tests start for themselves; without them those tests are skipped
	@./scripts/servers || echo "tests against PostgreSQL, MariaDB and Redis are skipped where these are missing"

kubernetes: ## build, once, the Kubernetes that tests run against, if there is Go; without it those tests are skipped
	@./scripts/kubernetes/prepare

image: ## build the container image by podman and start it: BASE=debian where no registry is reached; see scripts/image
	@./scripts/image

test-fast: setup ## tests that take less than ten seconds each
	@$(PYTEST) -n $(JOBS) -m "not slow"

bench: setup ## the speed table, beside the baselines: ONLY=name for one
	@$(BIN)/python -m bench $(ONLY)

up: setup ## start a control plane with virtual devices, run the mixed demonstration, show it; Ctrl-C stops: STATE=out/up
	@mkdir -p $(or $(STATE),out/up)
	@$(BIN)/clearway up --demo --listen 0 --state-dir $(or $(STATE),out/up)

run: setup ## the demonstration: a centre of 128 GPUs, static allocation against Clearway
	@mkdir -p out
	@$(BIN)/clearway scenario case-study --html out/case-study.html

sim: setup ## random clusters, jobs and faults under the checkers: SEEDS=1000 START=0
	@$(PYTEST) -n $(JOBS) tests/simulation --seed-start $(START) --seed-count $(or $(SEEDS),1000)

soak: setup ## the same with 100,000 seeds: SEEDS=100000 START=0
	@$(PYTEST) -n $(JOBS) tests/simulation --seed-start $(START) --seed-count $(or $(SEEDS),100000)

accept: setup ## rewrite the golden files from what the code gives now; look at the diff before committing
	@$(PYTEST) -n 0 --accept -m "golden"

docs: setup ## write the generated pages of docs/ anew
	@$(BIN)/python scripts/render_docs.py

pictures: setup ## draw the pictures of docs/pictures, which README shows, anew
	@$(BIN)/python scripts/render_pictures.py

lock: setup ## resolve the dependencies anew into requirements.lock
	@CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade \
	  --extra twin --extra live --extra nvidia --extra postgresql --extra mariadb --extra redis --extra kubernetes \
	  --extra dev --extra bench --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url \
	  --no-emit-find-links --no-emit-trusted-host --output-file requirements.lock pyproject.toml

clean: ## remove what the tasks made, the virtual environment and compiled code included
	@rm -rf .venv out build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@rm -rf "$(NUMBA_CACHES)"
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
