# Each target does all its own set-up: python3 and make are the only things assumed.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# Threads that wait should sleep: spinning ones make small steps many times slower on a busy machine.
export OMP_WAIT_POLICY := PASSIVE

.PHONY: help demo test lint typecheck unit clean

help:
	@echo "make demo   run the main job"
	@echo "make test   lint, type-check and run the tests"
	@echo "make clean  remove the virtual environment and caches"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

demo: $(READY)
	$(BIN)/irbm demo

test: lint typecheck unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: $(READY)
	$(BIN)/mypy

unit: $(READY)
	$(BIN)/python -m pytest

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
