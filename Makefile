# Every target makes its own virtual environment when it is missing.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
JOBS   ?= 2
SIZE   ?= small
OPTIONS ?=
# the version of PyTorch that is tested
TORCH  ?= torch==2.13.0
ENTRY  ?= --list
# tests that run once more with the threads that users have
THREADED := tests/numerics/test_threads.py tests/numerics/test_sparse_times.py tests/inference/test_gaussian_kl_ways.py

.PHONY: demo test test-torch test-lowest lint format bench profile reproduce docs build clean

demo: $(VENV)/.core
	$(VENV)/bin/latlin demo

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(RUN) -m pytest -n $(JOBS) --dist worksteal -q
	$(RUN) -m pytest -q $(THREADED)

# PyTorch is large: what needs it is tested in a virtual environment of its own
test-torch: .venv-torch/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 .venv-torch/bin/python -m pytest -q tests/swag src/latlin/swag
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 .venv-torch/bin/python -m pytest -q \
	  tests/test_docs.py tests/test_examples.py -k "network_weights or multiswag"

# the lowest versions that pyproject.toml allows
test-lowest: .venv-lowest/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 .venv-lowest/bin/python -m pytest -n $(JOBS) -q

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

# wheel and source archive, and a look into both
build: $(VENV)/bin/python
	$(RUN) -m pip install --quiet --disable-pip-version-check build
	rm -rf dist
	$(RUN) -m build
	$(RUN) tools/check_build.py dist

clean:
	rm -rf $(VENV) .venv-torch .venv-lowest build dist docs/_build .pytest_cache .mypy_cache .ruff_cache

.venv-torch/.dev: pyproject.toml
	$(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check -e ".[cli,torch]" pytest hypothesis
	touch $@

.venv-lowest/.dev: pyproject.toml
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check -e ".[cli,parquet,dask]" \
	  "numpy==2.0.*" "scipy==1.13.*" "scikit-learn==1.6.*" "numba==0.60.*" "pandas==2.2.*" \
	  hypothesis mpmath "pytest==8.2.*" "pytest-xdist==3.6.*"
	touch $@

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
	-$(RUN) -m pip install --quiet --disable-pip-version-check gpboost lifelines
	touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	$(RUN) -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	touch $@
