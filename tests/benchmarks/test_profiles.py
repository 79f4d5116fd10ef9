"""Samples and their summary: what an expression is called, to which group it belongs, what the page says."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.linalg import blas, lapack

import _limits
import profiles
from _sampler import ARITHMETIC, COMPILED, GROUPS, PYTHON, Place, Sampler, Spot, call_name, meant, place, source
from _task import Task, Trial


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("blas.dsyrk(1.0, a, trans=1)", "blas.dsyrk"),
        ("a @ b", "@"),
        ("2.0 * a", "arithmetic"),
        ("a > 0.0", "arithmetic"),
        ("a[mask]", "indexing"),
        ("(parallel if long else serial)(a)", "parallel"),
        ("self.rows.sum(axis=0)", "self.rows.sum"),
        ("x := 1", ""),
        ("name", ""),
    ],
)
def test_what_an_expression_calls(expression, name):
    assert call_name(expression) == name


class CPUDispatcher:
    """Stands for a compiled function, by the name of its type."""

    __name__ = "sweep"


@pytest.mark.parametrize(
    ("called", "group"),
    [
        ("blas.dsyrk", "BLAS"),
        ("_dtrmm", "BLAS"),
        ("@", "BLAS"),
        ("lapack.dpotrf", "LAPACK"),
        ("np.exp", "special functions"),
        ("np.where", ARITHMETIC),
        ("rows.sum", ARITHMETIC),
        ("np.ascontiguousarray", "copies"),
        ("kernel", COMPILED),
        ("build", PYTHON),
        ("", PYTHON),
    ],
)
def test_groups_in_words(called, group):
    scope = {"np": np, "blas": blas, "lapack": lapack, "build": dict}
    frame = SimpleNamespace(f_globals=scope, f_locals={"kernel": CPUDispatcher()})
    name, found = meant(called, frame)
    assert found == group
    assert name == ("sweep" if called == "kernel" else called.rpartition(".")[2])


def code_of(path, name="run"):
    return compile(f"def {name}():\n    return 1\n", path, "exec").co_consts[0]


def test_a_sample_belongs_to_the_nearest_function_of_latlin():
    mine, theirs = code_of("/site/latlin/gp/evidence.py", "prior"), code_of("/site/sklearn/gaussian_process/kernels.py")
    assert place(Spot(theirs, "exp", "special functions", (mine,))) == Place("scikit-learn", "run", "gp.evidence.prior")
    check = code_of("/site/latlin/inference/model.py", "_check_covariance")
    assert place(Spot(mine, "dpotrf", "LAPACK", (check,))).group == "validation"
    differences = code_of("/site/latlin/design/sequential.py", "finite_differences")
    assert place(Spot(mine, "dpotrf", "LAPACK", (differences,))) == Place("LAPACK", "dpotrf", "gp.evidence.prior")


def test_the_expression_of_an_instruction_is_found_in_its_source():
    def product(a):
        β = a + 1.0
        return np.cumsum(β)

    found = {source(product.__code__, i) for i in range(0, len(product.__code__.co_code), 2)}
    assert {"a + 1.0", "np.cumsum(β)"} <= found


def products():
    a = np.asfortranarray(np.ones((400, 400)))
    for _ in range(60):
        blas.dgemm(1.0, a, a)


def test_a_busy_product_is_seen_as_what_it_is():
    before = sys.getswitchinterval()
    with Sampler() as sampler:
        products()
    assert sys.getswitchinterval() == before
    found = sampler.places()
    assert found.most_common(1)[0][0][:2] == ("BLAS", "dgemm")
    assert set(p.group for p in found) <= set(GROUPS)
    assert any("products " in stack for stack in sampler.stacks())


def test_a_profile_has_shares_and_the_fraction_of_the_machine(monkeypatch):
    monkeypatch.setattr(profiles, "product_rate", lambda clock: 1e9)
    monkeypatch.setattr(profiles, "copy_rate", lambda clock: 1e9)
    monkeypatch.setattr(profiles, "ENOUGH", 0.05)
    task = Task("n", "m", lambda: Trial(products, flops=lambda _: 1e6, moved=lambda _: 2e6))
    found = profiles.profile(task)
    assert sum(found["groups"].values()) == pytest.approx(1.0, abs=1e-3)
    assert found["limits"]["dgemm"] == pytest.approx(1e6 / found["seconds"] / 1e9)
    assert found["limits"]["copy"] == pytest.approx(2.0 * found["limits"]["dgemm"])


def test_rates_are_those_of_the_fastest_call():
    times = iter([0.0, 4.0, 10.0, 11.0])
    assert _limits.best(lambda: None, 2, lambda: next(times)) == 1.0
    assert _limits.product_rate(size=20, repeats=1) > 0.0
    assert _limits.copy_rate(megabytes=1, repeats=1) > 0.0


def test_the_page_says_shares_places_and_limits():
    one = {
        "key": "N: a",
        "case": "N",
        "method": "a",
        "seconds": 0.1,
        "groups": {"BLAS": 0.8, PYTHON: 0.2},
        "places": [["BLAS", "dsyrk", "numerics.linalg.gram", 0.8], [PYTHON, "", "inference.newton.step", 0.2]],
        "limits": {"dgemm": 0.5},
    }
    other = one | {"key": "N: b", "method": "b", "groups": {PYTHON: 1.0}, "places": [], "limits": {}}
    lost = {"key": "N: c", "case": "N", "method": "c", "failed": "ValueError: no"}
    text = profiles.page({"run": None, "profiles": {"fit": [one, other, lost], "none": []}}, {"fit": {"title": "Fits"}})
    assert "| Fits | 40 | 60 |" in text
    assert "| Fits | N | a | 50 |  |" in text
    assert "| N | b |  | 100 |" in text
    assert "1. 40 %: BLAS, `dsyrk` in `numerics.linalg.gram`" in text
    assert "2. 10 %: Python, `inference.newton.step`" in text
    assert "ValueError" not in text


def test_the_stored_page_is_the_one_that_the_profiles_make():
    words = profiles.tomllib.loads((profiles.FOLDER / "reasons.toml").read_text(encoding="utf8"))
    made = profiles.page(profiles.load(), words)
    assert profiles.PAGE.read_text(encoding="utf8") == made, "python benchmarks/profiles.py --page writes it anew"
