# Every target sets up its own virtual environment when it is not there.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: run test test-all test-long smoke smoke-installed mutations lint notebooks pictures docs docs-links clean

$(VENV)/installed: requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

run: $(VENV)/installed
	$(BIN)/python -m launch train quickstart --baseline

# Tests of one case share its compiled programs, and so its process.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadgroup

test: $(VENV)/installed
	$(PYTEST)

test-all: $(VENV)/installed
	$(PYTEST) -m 'not long'

test-long: $(VENV)/installed
	$(PYTEST) -m long

# With another Python: make smoke PYTHON=python3.13
smoke:
	$(MAKE) smoke-installed VENV=.venv-$(shell $(PYTHON) -c \
	  'import sys; print("%d.%d" % sys.version_info[:2])')

smoke-installed: $(VENV)/installed
	$(BIN)/python -c 'import sys, jax; print(sys.version, "JAX", jax.__version__)'
	$(BIN)/python -m pytest tests -m 'smoke and not long'

mutations: $(VENV)/installed
	$(BIN)/python tests/support/mutations.py

notebooks: $(VENV)/installed
	$(BIN)/python -m notebooks.build

pictures: $(VENV)/installed
	$(BIN)/python -m launch reproduce --draw

# The site of docs/ in runs/site; a warning is an error. In one process: pages
# are generated with JAX, after which a fork may deadlock. docs-links checks the
# links to other sites, for which it needs the network.
SPHINX := $(BIN)/python -m sphinx -W --keep-going -q -d runs/site/.doctrees

docs: $(VENV)/installed
	$(SPHINX) -b html docs runs/site

docs-links: $(VENV)/installed
	$(SPHINX) -b linkcheck docs runs/site/links

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

clean:
	rm -rf $(VENV) .venv-* *.egg-info runs
