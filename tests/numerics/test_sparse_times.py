"""Products of sparse matrices with vectors on several threads."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from latlin.numerics import threads
from latlin.numerics.probes import sparse_times


@pytest.mark.parametrize("columns", [None, 1, 7])
@pytest.mark.parametrize("worth", [1e6, 1.0])
def test_products_are_those_of_the_dense_matrix(columns, worth, monkeypatch):
    monkeypatch.setattr(threads, "WORTH", worth)
    monkeypatch.setattr(threads, "_allowed", lambda: 3)
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((50, 30)) * (rng.random((50, 30)) < 0.2)
    v = rng.standard_normal(30 if columns is None else (30, columns))
    np.testing.assert_allclose(sparse_times(sparse.csr_array(dense), v), dense @ v, rtol=1e-13, atol=1e-13)
    turned = np.asfortranarray(v)
    np.testing.assert_allclose(sparse_times(sparse.csr_array(dense), turned), dense @ v, rtol=1e-13, atol=1e-13)


def test_matrices_without_rows_and_of_whole_numbers():
    assert sparse_times(sparse.csr_array((0, 3)), np.ones(3)).shape == (0,)
    np.testing.assert_array_equal(sparse_times(sparse.csr_array(np.array([[2, 0], [1, 1]])), np.ones(2)), [2.0, 2.0])
