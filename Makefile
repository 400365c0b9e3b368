# Every target sets up its own virtual environment when it is not there.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: run test test-long lint notebooks page clean

$(VENV)/installed: requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

run: $(VENV)/installed
	$(BIN)/python -m launch.train --config=configs/quickstart.py --workdir=runs/quickstart

test: $(VENV)/installed
	$(BIN)/python -m pytest -n 2

test-long: $(VENV)/installed
	$(BIN)/python -m pytest -m long

notebooks: $(VENV)/installed
	$(BIN)/python -m notebooks.build

page: $(VENV)/installed
	$(BIN)/python -m launch.reproduce --page

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

clean:
	rm -rf $(VENV) runs
