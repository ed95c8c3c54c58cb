PYTHON ?= python3
VENV := .venv
LOWEST := .venv-lowest
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-full test-lowest examples lint clean

demo: $(VENV)/core
	@$(BIN)/orthoslice demo --words

test: $(VENV)/dev
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-full: $(VENV)/dev
	ORTHOSLICE_FULL_TESTS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# All commands, frames and couplings with the lowest versions of what they need.
test-lowest: $(LOWEST)/installed
	$(LOWEST)/bin/python -m pytest -q -k "schema or frames or coupling" \
		tests/cli/test_commands.py tests/check/test_frames.py tests/couplings/test_coupling.py

examples: $(VENV)/dev
	$(BIN)/python -m examples

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) $(LOWEST)

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

$(LOWEST)/installed: pyproject.toml constraints-lowest.txt
	@echo "Installing the lowest versions of what orthoslice needs into $(LOWEST) ..."
	@$(PYTHON) -m venv $(LOWEST)
	@$(LOWEST)/bin/python -m pip install -qq --disable-pip-version-check -c constraints-lowest.txt \
		-e ".[jax,plot,data,dask,exact,cells]" array-api-strict hypothesis pytest scikit-learn
	@touch $@
