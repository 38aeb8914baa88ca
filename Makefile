# Every target makes what it needs in .venv/, from nothing but python3 and pip.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# What a broker needs, and no more: enough for the demo. Everything else is installed on top of it.
SMALL := $(VENV)/.small
# What only the long tests ask: 200 MB.
JUDGES := $(VENV)/.judges

BENCHES := codec log embedded delivery schemas server broker spark
BENCH_FLAGS ?=
DEBIAN_PACKAGES := strace curl kcat prometheus chromium
ONLY ?=
UPGRADE ?=
COMPILE := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet
WHEELS := --only-binary :all: --no-binary pyspark

# The interpreter that is here is the one we use, whatever tool installs into it.
export UV_PYTHON_DOWNLOADS := never
# As pip does.
export UV_SYSTEM_CERTS := true
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start hundreds of processes: each would compile half a second of source again if none kept what it compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo demo-lake check test torture bench docs sbom lock clean style types tidy tests-of-check tests-of-test debian-packages

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(SMALL) ## run the main job once, from nothing: a broker is killed, and keeps its word
	@$(BIN)/python -m examples.demo --part log --part shop

demo-lake: $(INSTALLED) ## the same, and then its orders go through Spark into a lake (installs Spark)
	@$(BIN)/python -m examples.demo

# Types and tidy take one core for most of a minute, so they run beside the tests.
check: $(INSTALLED) style ## the gate: format, lint, types, tidy, fast tests (3 minutes)
	@$(MAKE) --no-print-directory -j 3 types tidy tests-of-check

test: $(INSTALLED) style debian-packages ## the gate with the full tests (half an hour)
	@$(MAKE) --no-print-directory -j 3 types tidy tests-of-test

torture: $(INSTALLED) $(JUDGES) debian-packages ## the long counts; ONLY=expr picks tests by name
	$(BIN)/pytest --tier torture -n 2 --dist loadgroup -q $(if $(ONLY),-k '$(ONLY)')

bench: $(INSTALLED) ## every benchmark; BENCH_FLAGS="--quick --json" goes to each
	@set -e; for name in $(BENCHES); do $(BIN)/python -m bench $$name $(BENCH_FLAGS); done

docs: $(SMALL) ## the documentation as a site in build/docs, every link checked
	@$(BIN)/python tools/docs.py

sbom: ## what a broker is made of, as CycloneDX JSON in build/penstock.cdx.json
	@mkdir -p build
	@$(PYTHON) tools/sbom.py > build/penstock.cdx.json
	@echo "written to build/penstock.cdx.json"

lock: $(INSTALLED) ## write the lock files again; UPGRADE=1 takes newer versions
	$(BIN)/uv pip compile pyproject.toml --extra build --extra dev --extra bench --extra spark $(COMPILE) $(if $(UPGRADE),--upgrade) \
	  --output-file requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra build $(COMPILE) --constraint requirements.lock \
	  --output-file requirements-small.lock

clean: ## remove everything that the other targets made
	rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find src bench tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

style: $(INSTALLED)
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet

types: $(INSTALLED)
	$(BIN)/mypy

tidy: $(INSTALLED)
	$(BIN)/python tools/tidy.py

tests-of-check: $(INSTALLED)
	$(BIN)/pytest --tier check -n 2 -q

tests-of-test: $(INSTALLED)
	$(BIN)/pytest --tier test -n 2 --dist loadgroup -q

debian-packages:
	@for package in $(DEBIAN_PACKAGES); do \
	  command -v $$package >/dev/null && continue; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get install -qq -y --no-install-recommends $$package >/dev/null 2>&1 \
	      || { apt-get update -qq && apt-get install -qq -y --no-install-recommends $$package; } >/dev/null 2>&1 \
	      || true; \
	  fi; \
	  command -v $$package >/dev/null \
	    || echo "$$package is missing and could not be installed: tests that need it will say so"; \
	done

# Wheels only: nothing is compiled and no package runs code of its own while it is installed. The one
# exception is pyspark, which is published as a source archive only (its build copies files). The
# environment is made without pip (some systems ship no ensurepip): the outer pip installs what a broker
# needs, and uv, which installs the rest.
$(SMALL): requirements-small.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Penstock needs Python 3.11 or newer; try: make PYTHON=python3.11"; exit 1; }
	@echo "installing what a broker needs into $(VENV)/: $$(grep -c == requirements-small.lock) packages, some 100 MB"
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv --without-pip $(VENV)
	@$(PYTHON) -m pip --python $(BIN)/python install -q --require-hashes $(WHEELS) -r requirements-small.lock
	@$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@
	@echo "'. $(BIN)/activate' makes the command penstock, and the package, yours"

$(INSTALLED): requirements.lock $(SMALL)
	@echo "installing requirements.lock into $(VENV)/: Spark, the alternatives of the benchmarks, the tools, some 1.5 GB"
	@$(BIN)/uv pip install --python $(BIN)/python --require-hashes $(WHEELS) --compile-bytecode -r requirements.lock \
	  || { echo "uv could not install; trying pip"; \
	       $(PYTHON) -m pip --python $(BIN)/python install -q --require-hashes $(WHEELS) -r requirements.lock; }
	@touch $@

$(JUDGES): requirements-judges.lock $(INSTALLED)
	@$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --require-hashes $(WHEELS) -r requirements-judges.lock
	@touch $@
