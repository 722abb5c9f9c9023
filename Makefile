# Each target does all its own set-up: python3 and make are the only things assumed.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# Threads that wait should sleep: spinning ones make small steps many times slower on a busy machine.
export OMP_WAIT_POLICY := PASSIVE

.PHONY: help demo test lint typecheck unit pages docs clean

help:
	@echo "make demo   run the main job"
	@echo "make test   lint, type-check, run the tests and build the documentation"
	@echo "make pages  write the pages of results anew from the files in results/"
	@echo "make docs   build the documentation into site/; open site/index.html"
	@echo "make clean  remove the virtual environment and caches"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

demo: $(READY)
	$(BIN)/irbm demo

test: lint typecheck unit docs

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: $(READY)
	$(BIN)/mypy

unit: $(READY)
	$(BIN)/python -m pytest --numprocesses=auto

pages: $(READY)
	$(BIN)/python -m irbm.experiments.page
	$(BIN)/python -m irbm.experiments.classifiers_page
	$(BIN)/python -m irbm.experiments.likelihoods page
	$(BIN)/python -m irbm.experiments.regrouping page
	$(BIN)/python -m irbm.bench

# The theme would warn of another version of mkdocs than the pinned one. No --quiet: strict counts what it would hide.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf .venv site .mypy_cache .pytest_cache .ruff_cache .hypothesis
