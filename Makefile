# Every target makes .venv first when it is missing or older than the metadata.
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test check bench soak docs clean

help: ## what can be made
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  %-12s %s\n", $$1, $$2 }'

$(READY): setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "pypto-router needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1 | tail -n 1). Try: make PYTHON=python3.12"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 \
	  || { echo "==> making $(VENV)"; $(PYTHON) -m venv --clear $(VENV) \
	       || { echo "$(PYTHON) cannot make a virtualenv; on Debian: apt-get install python3-venv"; exit 1; }; }
	@echo "==> installing pypto-router and its tools into $(VENV) (a minute or two the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
	  -e '.[dev]' --config-settings editable_mode=compat >$(VENV)/install.log 2>&1 \
	  || { cat $(VENV)/install.log; exit 1; }
	@touch $@

demo: $(READY) ## a router that launches two simulated replicas; Ctrl-C ends it all
	@exec $(BIN)/pypto-router demo $(ARGS)

test: $(READY) ## format, lint, types and every test; ends with "N passed, N failed"
	@PATH="$$PATH:/usr/sbin"; for need in ssh:openssh-client sshd:openssh-server curl:curl; do \
	  command -v "$${need%:*}" >/dev/null \
	    || echo "$${need%:*} is missing: tests that need it will fail; on Debian: apt-get install $${need#*:}"; \
	done
	@$(BIN)/python .ci/tally.py "make check" "$(BIN)/trial -j2 tests"

check: $(READY) ## format, lint and types only
	@echo "==> ruff"
	@$(BIN)/ruff format --quiet --check . || { echo "not formatted: run $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@echo "==> mypy"
	@$(BIN)/mypy

bench: $(READY) ## what the router costs, next to nginx and to no router at all
	@$(BIN)/python -m bench wire $(ARGS)

soak: $(READY) ## half an hour of faults under load: nothing lost, nothing twice, nothing kept
	@$(BIN)/python -m bench soak $(ARGS)

docs: $(READY) ## the manual as HTML, in docs/_build/html; a warning is an error
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean: ## forget everything made here, .venv included
	@rm -rf $(VENV) build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  _trial_temp* *.egg-info .coverage* twisted/plugins/dropin.cache
