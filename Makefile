# Two commands matter: `make demo` shows the product, `make test` checks it.
# Each makes .venv and installs what it needs, once: a second call starts at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint docs format bench clean help

help: ## what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(VENV)/.installed-report ## a world with a known truth, every model, one report
	@$(BIN)/truelike demo

test: lint ## lint, types, all tests and doctests
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/.installed-dev ## ruff and mypy only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev ## let ruff mend the layout
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-dev ## the documentation, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

bench: $(VENV)/.installed-dev ## truelike beside its peers, in one run
	$(BIN)/python benchmarks/evaluate.py
	$(BIN)/python benchmarks/read.py
	$(BIN)/python benchmarks/train.py
	$(BIN)/python benchmarks/als.py
	$(BIN)/python benchmarks/deep.py
	$(BIN)/python benchmarks/anchor.py

clean: ## remove the virtual environment and all that was built
	rm -rf $(VENV) site dist truelike-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "truelike needs Python 3.11 or newer; say make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing truelike[$*] into $(VENV) (once)"
	@$(PIP) --editable '.[$*]'
	@touch $@
