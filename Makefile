PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-full examples lint clean

demo: $(VENV)/core
	@$(BIN)/orthoslice demo --words

test: $(VENV)/dev
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-full: $(VENV)/dev
	ORTHOSLICE_FULL_TESTS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

examples: $(VENV)/dev
	$(BIN)/python -m examples

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/core: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing orthoslice into $(VENV) ..."
	@$(PIP) -e .
	@touch $@

$(VENV)/dev: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing orthoslice and all test extras into $(VENV) ..."
	@$(PIP) -e ".[dev]"
	@touch $@
