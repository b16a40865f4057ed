# `make demo` shows the product, `make test` checks it.
# Each creates .venv and installs what it needs, once.
PYTHON ?= python3
VENV := .venv
OLDEST := .venv-oldest
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
DEV := $(VENV)/.installed-dev,schemas
EXE := $(if $(filter Windows_NT,$(OS)),.exe)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo serve test test-oldest fuzz lint docs format bench clean help

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

demo: $(VENV)/.installed-report,serve ## all models on synthetic data with known likes, and a report
	@$(BIN)/truelike demo

serve: $(VENV)/.installed-report,serve ## the page at http://127.0.0.1:8000 with two models of `make demo`
	@test -d truelike-demo/models || $(BIN)/truelike demo
	@$(BIN)/truelike serve truelike-demo/models/with-impressions truelike-demo/models/ials --events truelike-demo/events

test: lint ## lint, types, import rules, all tests and doctests
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-oldest: $(OLDEST)/.installed ## all tests with the oldest versions that pyproject.toml allows
	$(OLDEST)/$(SCRIPTS)/python -m pytest -n 2 --dist worksteal

fuzz: $(DEV) ## hostile inputs with new seeds for an hour, then Ctrl-C, kill -9, loads beside saves
	$(BIN)/python tests/hostile/fuzz.py --minutes $(or $(MINUTES),60) --scripts

lint: $(DEV) ## ruff, mypy and import-linter only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(DEV) ## format the code with ruff
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
	@echo "installing truelike[dev] with the oldest versions into $(OLDEST) (once)"
	@$(PYTHON) -m venv --clear $(OLDEST)
	@$(PYTHON) tools/oldest_versions.py > $(OLDEST)/constraints.txt
	@$(OLDEST)/$(SCRIPTS)/python -m pip install --quiet --disable-pip-version-check \
		--constraint $(OLDEST)/constraints.txt --editable '.[dev]'
	@touch $@
