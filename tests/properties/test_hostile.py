"""A small part of the searches in `tools`: damaged and forged files, and random models."""

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

import latlin
from latlin.gp import search
from latlin.gp.choice import APPROXIMATIONS
from latlin.numerics import archive, ascent, stored
from latlin.numerics.archive import read_archive

ROOT = Path(__file__).parents[2]


def tool(name):
    """A module of the folder `tools`."""
    spec = spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = sys.modules[name] = module_from_spec(spec)  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


FILES = tool("hostile_files")


#: processes and additive models take long to answer; further kinds are the same classes with other parts
FEWEST, FEW, MANY = 16, 12, 40


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """One folder for all workers of a run, in which each kind is fitted and saved once."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kinds"
    shared.mkdir(exist_ok=True)
    return shared


def files_of(kind):
    """How many files of a kind are tried."""
    slow = kind.startswith(("gp", "additive"))
    if kind in FILES.FURTHER:
        return FEWEST // 2 if slow else FEWEST
    return FEW if slow else MANY


@pytest.mark.parametrize("kind", FILES.KINDS)
def test_damaged_and_forged_files(kind, folder):
    count = files_of(kind)
    found, _, _, failures = FILES.search(kind, count, folder)
    assert not failures, "\n".join(failures)
    assert sum(found.values()) == count
    # about half of the files are damaged, and nearly all of these are refused; of few files chance has a share
    assert found["damaged refused"] >= (0.2 if count <= FEWEST else 0.35) * count
    assert found["forged refused"] >= 0.1 * count


def test_the_search_knows_every_kind_of_file(folder):
    for room in stored.ROOMS:
        stored.import_room(room)
    kinds = {name for name, cls in archive._KINDS.items() if name.startswith("latlin.") and not cls.__subclasses__()}
    known = {read_archive(FILES.saved(kind, folder)).kind for kind in FILES.KINDS}
    assert kinds | {ascent.CHECKPOINT, search.KIND} <= known
    approximations = {latlin.load(FILES.saved(kind, folder)).approximation_.name for kind in FILES.PROCESSES}
    assert approximations == set(APPROXIMATIONS)


def test_an_error_in_an_answer_is_a_failure():
    def stumble(model):
        return {}[model]

    with pytest.raises(KeyError):
        FILES._answer("model", stumble)


def test_random_models():
    found, failures = tool("hostile").search(40)
    assert not failures, "\n".join(failures)
    assert found["converged"] >= 20


def test_processes_and_threads_at_work_while_some_are_killed():
    numbers = {"--seconds": 4, "--processes": 2, "--threads": 2, "--kill-every": 2, "--patience": 240}
    options = ["--no-cluster", *(str(word) for pair in numbers.items() for word in pair)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run([sys.executable, ROOT / "tools" / "soak.py", *options], capture_output=True, env=environment)
    assert ran.returncode == 0, ran.stdout.decode() + ran.stderr.decode()
    assert b"process worker killed" in ran.stdout
    assert b"thread " in ran.stdout


#: written by `tools/hostile_files.py keep` under NumPy 2.0.2, SciPy 1.13.1, scikit-learn 1.6.1, Numba 0.60.0
KEPT = Path(__file__).parent / "files"


@pytest.mark.parametrize("name", FILES.TRAVELLING)
def test_files_of_the_lowest_versions_answer_as_they_did_there(name):
    kind = FILES.KINDS[name]
    found = FILES._arrays(kind.numbers(kind.load(KEPT / f"{name}.latlin")))
    with np.load(KEPT / "numbers.npz") as numbers:
        for place, array in enumerate(found):
            np.testing.assert_allclose(array, numbers[f"{name} {place}"], rtol=1e-9, atol=1e-12)


OLD = os.environ.get("LATLIN_OTHER_PYTHON")
READ = """
import sys, latlin
latlin.load(sys.argv[1]).save(sys.argv[2])
"""


@pytest.mark.skipif(OLD is None, reason="LATLIN_OTHER_PYTHON names no Python with other versions of NumPy and SciPy")
@pytest.mark.parametrize("kind", FILES.KINDS)
def test_files_travel_between_versions(kind, tmp_path):
    path, back = FILES.saved(kind, tmp_path), tmp_path / "back.latlin"
    subprocess.run([OLD, "-c", READ, path, back], check=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")})
    numbers = FILES.KINDS[kind].numbers
    ours, theirs = (numbers(latlin.load(file)) for file in (path, back))
    np.testing.assert_equal(theirs, ours)
