"""Products on SciPy's BLAS without Python's lock: the digits of SciPy's wrappers, and other threads run meanwhile."""

import threading
import time

import numpy as np
import pytest
from scipy.linalg import blas

from latlin.numerics.linalg import add_gram, times_upper


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize(("kind", "letter", "digits"), [(np.float64, "d", 1e-12), (np.float32, "s", 1e-4)])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (7, 3), (3, 7), (200, 33)])
def test_the_digits_are_those_of_the_wrappers(n, d, kind, letter, digits, rng):
    rows = rng.standard_normal((n, d)).astype(kind)
    total = np.asfortranarray(np.triu(rng.standard_normal((d, d))), kind)
    expected = getattr(blas, f"{letter}syrk")(1.0, rows.T, beta=1.0, c=total)
    add_gram(rows, total)
    np.testing.assert_array_equal(np.triu(total), np.triu(expected))
    upper = np.asfortranarray(rng.standard_normal((d, d)), kind)
    expected = getattr(blas, f"{letter}trmm")(1.0, upper, rows.T, lower=0, trans_a=1).T
    np.testing.assert_allclose(expected, rows @ np.triu(upper), rtol=digits, atol=digits)
    times_upper(rows, upper)
    np.testing.assert_array_equal(rows, expected)


def test_no_rows(rng):
    total = np.zeros((3, 3), order="F")
    add_gram(np.empty((0, 3)), total)
    assert not total.any()


@pytest.mark.parametrize("product", [add_gram, times_upper])
def test_what_does_not_fit_is_refused(product):
    with pytest.raises(ValueError, match="C-ordered"):
        product(np.ones((4, 3), order="F"), np.ones((3, 3), order="F"))
    with pytest.raises(ValueError, match="C-ordered"):
        product(np.ones((4, 3), np.float32), np.ones((3, 3), order="F"))
    with pytest.raises(ValueError, match=r"\(3, 3\)"):
        product(np.ones((4, 3)), np.ones((3, 2), order="F"))


def test_another_thread_runs_meanwhile():
    rows, total, over = np.ones((20_000, 400)), np.zeros((400, 400), order="F"), threading.Event()
    started = threading.Event()
    ticks = []

    def tick():
        started.set()
        while not over.is_set():
            ticks.append(time.perf_counter())

    other = threading.Thread(target=tick)
    other.start()
    started.wait()
    begin = time.perf_counter()
    add_gram(rows, total)
    end = time.perf_counter()
    over.set()
    other.join()
    # at least one tick lies well inside the product
    assert any(begin + 0.2 * (end - begin) < t < begin + 0.8 * (end - begin) for t in ticks)
