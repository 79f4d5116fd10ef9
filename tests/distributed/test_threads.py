"""Compiled parallel loops and BLAS, called from threads that run beside each other."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numba
import numpy as np
import pytest

from latlin.distributed import threads
from latlin.distributed.threads import loops_may_overlap, one_thread, side_by_side


@numba.njit(parallel=True)
def squares(x):
    total = 0.0
    for i in numba.prange(x.size):
        total += x[i] * x[i]
    return total


def guarded(x):
    with one_thread():
        return squares(x), numba.get_num_threads()


@pytest.mark.parametrize("overlap", [True, False])
def test_parallel_loops_survive_threads(overlap, monkeypatch):
    if overlap and not loops_may_overlap():
        pytest.skip("Numba has only its own work queue here")
    monkeypatch.setattr(threads, "loops_may_overlap", lambda: overlap)
    x = np.ones(10_000)
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(guarded, [x] * 64)) == {(10_000.0, 1)}


def test_threads_are_given_back():
    before = numba.get_num_threads()
    with pytest.raises(KeyError), one_thread():
        raise KeyError
    assert numba.get_num_threads() == before


def test_an_unknown_layer_is_judged_by_what_is_there(monkeypatch):
    def not_started():
        raise ValueError

    monkeypatch.setattr(numba, "threading_layer", not_started)
    monkeypatch.setattr(threads, "import_module", lambda name: (_ for _ in ()).throw(ImportError()))
    assert not loops_may_overlap()
    monkeypatch.setattr(threads, "import_module", lambda name: nullcontext())
    assert loops_may_overlap()


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_work_is_shared_in_order(count, monkeypatch):
    monkeypatch.setattr(numba, "get_num_threads", lambda: count)
    monkeypatch.setattr(numba, "set_num_threads", lambda n: None)
    monkeypatch.setattr(threads, "loops_may_overlap", lambda: True)
    taken = []

    def parts():
        for part in range(20):
            taken.append(part)
            yield part

    found = []
    for answer in side_by_side(lambda part: part**2, parts(), 20):
        found.append(answer)
        assert len(taken) - len(found) <= (count if count > 1 else 0)
    assert found == [part**2 for part in range(20)]


def test_an_error_ends_the_work(monkeypatch):
    monkeypatch.setattr(numba, "get_num_threads", lambda: 2)
    monkeypatch.setattr(numba, "set_num_threads", lambda n: None)
    monkeypatch.setattr(threads, "loops_may_overlap", lambda: True)
    with pytest.raises(ZeroDivisionError):
        list(side_by_side(lambda part: 1 // part, [1, 2, 0, 3, 4, 5], 6))
