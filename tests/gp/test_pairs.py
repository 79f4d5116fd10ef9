"""Kernels pair by pair have the entries and the derivatives of scikit-learn's matrices."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)

from latlin.gp.kernel_gradients import Pairs, pair_covariances
from latlin.gp.kernels import Columns, Cosine

KERNELS = [
    ConstantKernel(1.3) * RBF([0.3, 0.7]) + WhiteKernel(0.1),
    ConstantKernel(1.3, "fixed") * RBF(0.4, "fixed") + WhiteKernel(0.1),
    Matern([0.3, 0.5], nu=0.5),
    Matern(0.3, nu=1.5),
    Matern([0.3, 0.5], nu=2.5),
    Matern(0.3, nu=np.inf),
    RationalQuadratic(0.4, 0.7),
    RBF([0.3, 0.7]) * Cosine([0.8, 1.3]) + ConstantKernel(0.5) * RBF(0.2) * Cosine(2.0),
    RBF(0.5) * Cosine(1.0, "fixed"),
    ExpSineSquared(1.2, 0.7) + DotProduct(0.5) ** 2,
    Columns(RBF(0.3), 0) * Columns(Matern(0.4, nu=1.5), [1]) + Columns(RBF([0.3, 0.2]), ["b", "a"], ["a", "b"]),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_pairs_are_entries_of_the_matrix(kernel):
    X = np.random.default_rng(0).random((15, 2))
    i, j = np.tril_indices(len(X))
    matrix, slopes = kernel(X, eval_gradient=True)
    values, own = pair_covariances(kernel, Pairs(X[i], X[j], i == j), slopes=True)
    np.testing.assert_allclose(values, matrix[i, j], rtol=1e-13, atol=1e-15)
    assert len(own) == kernel.n_dims
    np.testing.assert_allclose(np.array(own).T.reshape(len(i), -1), slopes[i, j], rtol=1e-11, atol=1e-14)
    assert pair_covariances(kernel, Pairs(X[i], X[j], i == j))[1] == []


@pytest.mark.parametrize(("kernel", "word"), [(PairwiseKernel(), "PairwiseKernel"), (Matern(nu=0.7), "nu")])
def test_other_kernels_are_refused(kernel, word):
    X = np.zeros((2, 2))
    with pytest.raises(ValueError, match=word):
        pair_covariances(kernel, Pairs(X, X, np.zeros(2, bool)))
