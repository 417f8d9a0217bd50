# `make demo` and `make test` are each enough on a fresh machine with Python 3.11 or later.
# Everything is installed into .venv, once, and again when pyproject.toml changes.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_SPARK := $(VENV)/.installed-spark
PAGE := gateway/docs_page/index.html
ARGS ?=

.PHONY: help demo demo-owners demo-spark test test-fast systems histories lint bench serve docs-page lock clean libraries java chromium

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

demo: $(INSTALLED) libraries ## show concurrent writers keeping each other's changes
	@$(BIN)/python -m docs.examples.demo $(ARGS)

demo-owners: $(INSTALLED) libraries ## show a nightly job and people who share documents
	@$(BIN)/python -m docs.examples.demo --owners $(ARGS)

demo-spark: java $(INSTALLED_SPARK) libraries ## keep a catalog in step with Debian's package index, by Spark
	@docs/examples/apt-lists.sh $(VENV)/debian
	@$(BIN)/python docs/examples/debian_packages.py $(VENV)/debian/lists $(ARGS)

test: java chromium $(INSTALLED_SPARK) $(PAGE) libraries ## run all tests, on a real MongoDB and a real Spark
	@$(BIN)/python -m pytest --numprocesses 4 --dist loadscope --no-loadscope-reorder $(ARGS)

test-fast: $(INSTALLED) $(PAGE) ## run the tests that need no MongoDB
	@$(BIN)/python -m pytest -m "not mongod" $(ARGS)

systems: $(INSTALLED) libraries ## print a table of what the five systems do, with the test of each behaviour
	@$(BIN)/python -m tests.systems $(ARGS)

histories: $(INSTALLED) libraries ## record runs with faults, and check their histories independently
	@$(BIN)/python -m tests.histories $(ARGS)

lint: $(INSTALLED_SPARK) ## check style, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(INSTALLED) libraries ## measure throughput and latency under contention
	@$(BIN)/python -m benchmarks $(ARGS)

serve: $(INSTALLED) $(PAGE) libraries ## serve on 127.0.0.1:8080 without access control, with an embedded MongoDB
	@$(BIN)/gateway serve --embedded --no-access $(ARGS)

docs-page: $(PAGE) ## build the page at /docs from openapi.yaml

lock: $(INSTALLED) ## pin what the container image installs in requirements.lock, by version and hash
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  | $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.13 \
	  --generate-hashes --no-annotate --custom-compile-command 'make lock' \
	  --extra server --output-file requirements.lock pyproject.toml -

clean: ## remove what make and the tools created
	rm -rf $(VENV) $(PAGE) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Installing makes it, too; this is for when its source changes.
$(PAGE): openapi.yaml $(wildcard docs/api_page/*) $(INSTALLED)
	@$(BIN)/python docs/api_page/build.py

$(INSTALLED): pyproject.toml setup.py
	@python=; \
	for candidate in python3.13 python3.12 python3.11 python3; do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	  then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "make: Python 3.11 or later is needed; on Debian 12: apt-get install python3 python3-venv" >&2; \
	  exit 1; \
	fi; \
	if [ ! -x $(BIN)/pip ]; then \
	  rm -rf $(VENV); \
	  if ! "$$python" -m venv $(VENV) >/dev/null; then \
	    rm -rf $(VENV); \
	    echo "make: $$python can't create a virtual environment; on Debian and Ubuntu: apt-get install $$(basename "$$python")-venv" >&2; \
	    exit 1; \
	  fi; \
	fi; \
	echo "Installing into $(VENV) ..."; \
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,embedded]'
	@touch $@

$(INSTALLED_SPARK): $(INSTALLED)
	@echo "Installing Spark into $(VENV) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,embedded,spark]'
	@touch $@

# Asked for first: Spark is large, and nothing without it. Debian 12 has no Java 21, Debian 13 no Java 17.
java:
	@if command -v "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" >/dev/null; then exit 0; fi; \
	install="apt-get install -y openjdk"; \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  apt-get update -qq; \
	  version=17; apt-get install --simulate openjdk-21-jre-headless >/dev/null 2>&1 && version=21; \
	  DEBIAN_FRONTEND=noninteractive $$install-$$version-jre-headless -qq >/dev/null; \
	else \
	  echo "make: Spark needs Java 17 or 21; on Debian 12: sudo $$install-17-jre-headless; on Debian 13 and Ubuntu: sudo $$install-21-jre-headless" >&2; \
	  exit 1; \
	fi

# The console is tested in a browser.
chromium:
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then exit 0; fi; \
	install="apt-get install -y chromium chromium-driver"; \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$install -qq >/dev/null; \
	else \
	  echo "make: the console's tests need Chromium and its driver; on Debian: sudo $$install" >&2; \
	  exit 1; \
	fi

# The mongod of the extra `embedded` needs two system libraries; a mongod on PATH comes with its own.
libraries:
	@if [ "$$(uname -sm)" != "Linux x86_64" ] || command -v mongod >/dev/null; then exit 0; fi; \
	known=$$(PATH="$$PATH:/sbin:/usr/sbin" ldconfig -p || true); \
	if [[ "$$known" == *libcurl.so.4* && "$$known" == *libssl.so.3* ]]; then exit 0; fi; \
	install="apt-get install -y libcurl4 libssl3"; \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$install -qq >/dev/null; \
	else \
	  echo "make: MongoDB needs libcurl4 and OpenSSL 3; on Debian and Ubuntu: sudo $$install" >&2; \
	  exit 1; \
	fi
