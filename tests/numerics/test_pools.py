"""BLAS keeps to one thread where compiled loops need the cores."""

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

from latlin.densities.structured.rows import SparseRows, one_pool
from latlin.numerics.pools import one_blas_thread


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        yield blas_threads()


def test_blas_takes_one_thread_and_then_its_own_again(two_threads):
    with one_blas_thread():
        assert blas_threads() == {1}
    assert blas_threads() == two_threads


def test_only_sparse_rows_take_the_threads_of_blas(two_threads):
    with one_pool(SparseRows(sparse.csr_array(np.eye(3)))):
        assert blas_threads() == {1}
    with one_pool(np.eye(3)):
        assert blas_threads() == two_threads


def test_threads_come_back_after_an_error(two_threads):
    with pytest.raises(KeyError), one_blas_thread():
        raise KeyError
    assert blas_threads() == two_threads
