# `make demo` shows the product, `make test` checks it.
# Each creates .venv and installs what it needs, once.
PYTHON ?= python3
VENV := .venv
OLDEST := .venv-oldest
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
TEST := $(VENV)/.installed-test
DEV := $(VENV)/.installed-dev,schemas
PYTEST := -m pytest -n 2 --dist worksteal
EXE := $(if $(filter Windows_NT,$(OS)),.exe)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo serve test test-slow test-oldest test-all fuzz lint docs format bench clean help

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

demo: $(VENV)/.installed-plot,serve ## all models on synthetic data with known likes, and a report
	@$(BIN)/truelike demo

serve: $(VENV)/.installed-plot,serve ## the page at http://127.0.0.1:8000 with two models of `make demo`
	@test -d truelike-demo/models || $(BIN)/truelike demo
	@$(BIN)/truelike serve truelike-demo/models/with-impressions truelike-demo/models/ials --events truelike-demo/events

test: lint ## lint, types, import rules, and every test that is not marked slow
	$(BIN)/python $(PYTEST) -m "not slow"

test-slow: $(DEV) ## the other tests: servers, Chromium, Ray, fuzzers, networks, examples
	$(BIN)/python $(PYTEST) -m slow

test-oldest: $(OLDEST)/.installed ## the tests of `make test` with the oldest versions that pyproject.toml allows
	$(OLDEST)/$(SCRIPTS)/python $(PYTEST) -m "not slow"

test-all: test test-slow test-oldest ## everything

fuzz: $(DEV) ## hostile inputs with new seeds for an hour, then Ctrl-C, kill -9, loads beside saves
	$(BIN)/python tests/hostile/fuzz.py --minutes $(or $(MINUTES),60) --scripts

lint: $(TEST) ## ruff, mypy and import-linter only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(TEST) ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-docs ## the documentation, into docs/_build/html/
	$(BIN)/python -m sphinx -W --keep-going -q docs docs/_build/html
	@echo "open docs/_build/html/index.html"

bench: $(DEV) ## truelike beside its peers, in one run
	$(BIN)/python benchmarks/evaluate.py
	$(BIN)/python benchmarks/read.py
	$(BIN)/python benchmarks/train.py --defaults
	$(BIN)/python benchmarks/als.py --defaults
	$(BIN)/python benchmarks/ease.py
	$(BIN)/python benchmarks/network_speed.py
	$(BIN)/python benchmarks/anchor.py
	$(BIN)/python benchmarks/serve.py

clean: ## remove the virtual environments and everything that was built
	rm -rf $(VENV) $(OLDEST) dist docs/_build docs/gallery docs/reference/generated docs/sg_execution_times.rst truelike-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python$(EXE):
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "truelike needs Python 3.11 or newer; say make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python$(EXE)
	@echo "installing truelike[$*] into $(VENV) (once)"
	@$(PIP) --editable '.[$*]'
	@touch $@

$(OLDEST)/.installed: pyproject.toml constraints.txt tools/oldest_versions.py
	@echo "installing truelike[test] with the oldest versions into $(OLDEST) (once)"
	@$(PYTHON) -m venv --clear $(OLDEST)
	@$(PYTHON) tools/oldest_versions.py > $(OLDEST)/constraints.txt
	@$(OLDEST)/$(SCRIPTS)/python -m pip install --quiet --disable-pip-version-check \
		--constraint $(OLDEST)/constraints.txt --editable '.[test]'
	@touch $@
