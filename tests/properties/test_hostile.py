"""A small part of the searches in `tools`: damaged and forged files, and random models."""

import os
import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import latlin

ROOT = Path(__file__).parents[2]


def tool(name):
    """A module of the folder `tools`."""
    spec = spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FILES = tool("hostile_files")


@pytest.mark.parametrize("kind", FILES.KINDS)
def test_a_hundred_files(kind, tmp_path):
    found = FILES.search(kind, 100, tmp_path)
    assert sum(found.values()) == 100
    assert found["damaged refused"] >= 35
    assert found["forged refused"] >= 10


def test_random_models():
    found, failures = tool("hostile").search(60)
    assert not failures, "\n".join(failures)
    assert found["converged"] >= 30


OLD = os.environ.get("LATLIN_OTHER_PYTHON")
READ = """
import sys, numpy as np, latlin
model = latlin.load(sys.argv[1])
np.savetxt(sys.argv[2], model.predict(np.eye(3)))
model.save(sys.argv[3])
"""


@pytest.mark.skipif(OLD is None, reason="LATLIN_OTHER_PYTHON names no Python with other versions of NumPy and SciPy")
def test_files_travel_between_versions(tmp_path):
    path = FILES.saved("linear", tmp_path)
    there, back = tmp_path / "there.txt", tmp_path / "back.latlin"
    subprocess.run([OLD, "-c", READ, path, there, back], check=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")})
    assert back.read_bytes() == path.read_bytes()
    assert latlin.load(back).predict([[1.0, 0.0, 0.0]])[0] == pytest.approx(float(there.read_text().split()[0]))
