# Every target makes its own virtual environment when it is missing.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
JOBS   ?= 2
SIZE   ?= small
OPTIONS ?=
ENTRY  ?= --list

.PHONY: demo test lint format bench profile reproduce docs clean

demo: $(VENV)/.core
	$(VENV)/bin/latlin demo

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(RUN) -m pytest -n $(JOBS) -q

lint: $(VENV)/.dev
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

format: $(VENV)/.dev
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

bench: $(VENV)/.bench
	$(RUN) benchmarks/run.py --size $(SIZE) $(OPTIONS)

profile: $(VENV)/.bench
	$(RUN) benchmarks/profiles.py $(OPTIONS)

# make reproduce ENTRY=table-5.3 OPTIONS="--quick --out FOLDER --data FOLDER"
reproduce: $(VENV)/.core
	$(RUN) -m reproduction $(ENTRY) $(OPTIONS)

docs: $(VENV)/.docs
	OMP_NUM_THREADS=1 $(RUN) -m sphinx -b html -W --keep-going docs docs/_build/html

clean:
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml | $(VENV)/bin/python
	$(RUN) -m pip install --quiet --disable-pip-version-check -e ".[cli]"
	touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(RUN) -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@

$(VENV)/.bench: pyproject.toml | $(VENV)/bin/python
	$(RUN) -m pip install --quiet --disable-pip-version-check -e ".[bench]" || \
	  $(RUN) -m pip install --quiet --disable-pip-version-check -e ".[cli,parquet]"
	touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	$(RUN) -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	touch $@
