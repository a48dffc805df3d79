# Every target does its own set-up into .venv and works the first time and every later time.
PYTHON ?= python3
BIN := .venv/bin
export TOKENIZERS_PARALLELISM := false

.PHONY: help setup demo serve test test-long lint bench evaluate clean

help:
	@echo "make demo       start the service, ask it about examples/scene.jpg, draw into demo/, stop"
	@echo "make serve      start the service on http://127.0.0.1:8000"
	@echo "make test       the tests"
	@echo "make test-long  soaks and long fuzzing"
	@echo "make lint       ruff, mypy, import-linter"
	@echo "make bench      what pipelining gives, and requests per second of the default model"
	@echo "make evaluate   how right the default model is: docs/default-model.md"

setup: .venv/installed

.venv/installed: pyproject.toml sdk/pyproject.toml constraints.txt Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Pointbox needs Python 3.11 or newer: set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update && apt-get install -y python3-venv; \
	  else echo "Python's venv module is missing: sudo apt-get install python3-venv"; exit 1; fi; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e sdk -e '.[dev,training]'
	@# Moondream's client, for the compatibility test; its own dependencies are another engine.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps moondream==2.6.1
	@# The page's tests drive Debian's Chromium.
	@test -x /usr/bin/chromium || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq chromium >/dev/null; \
	  else false; fi; } \
	  || echo "Chromium is missing, so tests/web will be skipped: sudo apt-get install chromium"
	@touch $@

demo: setup
	$(BIN)/python examples/demo.py

serve: setup
	$(BIN)/pointbox serve

test: setup
	$(BIN)/python -m pytest -q -m "not long"

test-long: setup
	$(BIN)/python -m pytest -q -m long

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	$(BIN)/pointbox bench pipeline --forward-ms 3.9 --streams 32 --mode both
	$(BIN)/pointbox bench throughput --concurrency 32

evaluate: setup
	$(BIN)/python -m training.evaluate

clean:
	rm -rf .venv build dist demo *.egg-info sdk/build sdk/*.egg-info
