"""What other people's scripts rely on: names and import cost."""

import json
import subprocess
import sys

import pytest

import latlin


def test_public_names_exist():
    for name in latlin.__all__:
        assert getattr(latlin, name) is not None
    assert set(latlin.__all__) <= set(dir(latlin))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        latlin.nothing  # noqa: B018


def test_import_brings_in_nothing_heavy():
    code = "import latlin, sys, json; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    for heavy in ("torch", "dask", "matplotlib", "pandas", "sklearn", "numba"):
        assert heavy not in modules


def test_inference_brings_in_no_optional_package():
    code = (
        "import json, sys; from latlin import *; from latlin import potentials;"
        "infer(LatentLinearModel([GaussianFactor(dim=1), SiteFactor([[1.0]], potentials.Logit([1]))]), 'gkl');"
        "print(json.dumps(sorted(sys.modules)))"
    )
    modules = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    for heavy in ("torch", "dask", "matplotlib", "pandas", "sklearn"):
        assert heavy not in modules
