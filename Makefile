# Each target does all of its own set-up: a Python 3.11 or newer and make are enough. Java comes from a wheel.
#   make demo    Nexmark q4 kept up to date on Spark, checked at the end
#   make test    every doctest and every test but those that take long, the same way each time
#   make verify  the tests that take long
#   make fuzz    a search with fresh randomness, MINUTES=60 long
#   make check   lint, format, types, layers
#   make bench   the measurements of benches/, one after the other
#   make docs    the documentation as a site in build/site, every link checked
#   make dist    the sdist and the wheel in dist/, with their tests
#   make proto   the generated code of the messages, again

VENV := .venv
BIN := $(VENV)/bin
CANDIDATES := python3.11 python3.12 python3.13 python3.14 python3 python
# ensurepip is asked for too: some systems ship a Python whose venv makes no pip.
USABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

# Tests are dealt out by files to as many processes as there are cores, four at most: some start a Spark of their own.
PYTEST = PYTHONHASHSEED=0 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile \
	--no-loadscope-reorder
VERIFY := verify
MINUTES := 60

export PYTHONUNBUFFERED := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HEADRACE_CACHE := $(CURDIR)/.cache/headrace
unexport PYTHONPATH

.PHONY: demo test verify fuzz check bench dist format docs proto setup clean
.DEFAULT_GOAL := test

demo: setup $(VENV)/archive
	$(BIN)/python -m examples.nexmark.demo

test: setup $(VENV)/archive
	$(PYTEST) -m "not verify"

verify: setup $(VENV)/archive
	$(PYTEST) -m "$(VERIFY)"

fuzz: setup $(VENV)/archive
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

bench: setup $(VENV)/archive
	@set -e; for script in benches/*.py; do echo "== $$script"; PYTHONPATH=. $(BIN)/python $$script; done

# Without isolation, the pinned build tools are used. The wheel is built from the sdist.
dist: setup
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	HEADRACE_DIST=dist $(BIN)/python -m pytest --quiet tests/project/test_distribution.py

format: setup
	$(BIN)/ruff check --fix --select I .
	$(BIN)/ruff format .

docs: setup
	PYTHONPATH=src:. NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

proto: setup
	PYTHONPATH=. $(BIN)/python -m tests.project.generated_code

setup: $(VENV)/installed

# The stamp is younger than what it was made from, or the installation is done again.
$(VENV)/installed: pyproject.toml requirements/dev.txt
	@set -e; found=; \
	for candidate in $(CANDIDATES); do \
	  if command -v $$candidate >/dev/null 2>&1 && $$candidate -c '$(USABLE)' >/dev/null 2>&1; then found=$$candidate; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "No Python 3.11 or newer with venv and ensurepip found (tried: $(CANDIDATES))." >&2; \
	  echo "Install one; on Debian or Ubuntu: apt-get install python3 python3-venv" >&2; exit 1; \
	fi; \
	if ! [ -x $(BIN)/python ] || ! $(BIN)/python -c '$(USABLE)' >/dev/null 2>&1; then \
	  rm -rf $(VENV); $$found -m venv $(VENV); \
	fi
	$(BIN)/python -m pip install --quiet --requirement requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# Halves every start of Spark; nothing depends on it but time, so a Java that cannot make it is no failure.
$(VENV)/archive: $(VENV)/installed
	-@$(BIN)/python -m headrace.spark
	@touch $@

clean:
	rm -rf $(VENV) .cache build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
