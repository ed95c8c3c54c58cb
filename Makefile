PYTHON ?= python3
VENV := .venv
LOWEST := .venv-lowest
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-all test-full test-lowest examples docs wheel lint clean

demo: $(VENV)/core
	@$(BIN)/orthoslice demo --words

PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

# Every promise once.
test: $(VENV)/dev
	$(PYTEST) -m "not full"

# Every test.
test-all: $(VENV)/dev
	$(PYTEST)

# Every test, and the statistical ones with thousands of simulations.
test-full: $(VENV)/dev
	ORTHOSLICE_FULL_TESTS=1 $(PYTEST)

# All commands, frames and couplings with the lowest versions of what they need.
test-lowest: $(LOWEST)/installed
	$(LOWEST)/bin/python -m pytest -q -k "schema or frames or coupling" \
		tests/cli/test_commands.py tests/check/test_frames.py tests/couplings/test_coupling.py

examples: $(VENV)/dev
	$(BIN)/python -m examples

# The site: warnings are errors, and links are checked without a network. It opens at site/index.html.
docs: $(VENV)/docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html -c docs -d build/doctrees . site
	@echo "The site is in site/index.html"

# A wheel that was installed and run where nothing else is: the data and the types are in it, and no tests.
wheel: $(BIN)/python
	rm -rf dist build/wheel
	$(BIN)/python -m pip wheel -qq --disable-pip-version-check --no-deps -w dist .
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt dist/*.whl
	$(BIN)/python -m zipfile -l dist/*.whl | grep -q "orthoslice/py.typed"
	$(BIN)/python -m zipfile -l dist/*.whl | grep -q "orthoslice/datasets/digits.npz"
	! $(BIN)/python -m zipfile -l dist/*.whl | grep -E "tests/|experiments/|benchmarks/"
	cd build && wheel/bin/orthoslice demo --words && wheel/bin/orthoslice info --words

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) $(LOWEST) site build docs/gallery tests/__pycache__/jax

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

$(VENV)/docs: $(VENV)/dev
	@echo "Installing what makes the site into $(VENV) ..."
	@$(PIP) -e ".[docs]"
	@touch $@

$(LOWEST)/installed: pyproject.toml constraints-lowest.txt
	@echo "Installing the lowest versions of what orthoslice needs into $(LOWEST) ..."
	@$(PYTHON) -m venv $(LOWEST)
	@$(LOWEST)/bin/python -m pip install -qq --disable-pip-version-check -c constraints-lowest.txt \
		-e ".[jax,plot,data,excel,frames,dask,exact,cells]" array-api-strict hypothesis pytest scikit-learn
	@touch $@
