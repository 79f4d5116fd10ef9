"""Sparse filters go the same way as dense ones, at the cost of pairs of non-zeros."""

import numpy as np
import pytest
from scipy import sparse

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials
from latlin.design import finite_differences, wavelet_transform
from latlin.inference.forms.projections import pair_gram, pair_squares, split_rows
from latlin.numerics.linalg import symmetrise


def test_pairs_are_the_dense_products():
    rng = np.random.default_rng(0)
    rows = sparse.csr_array(sparse.random_array((40, 64), density=0.05, random_state=rng) + 0.0)
    rows = sparse.csr_array(sparse.vstack([rows, sparse.csr_array(rng.standard_normal((3, 64)))]))
    split, weights = split_rows(rows), rng.standard_normal(43)
    assert 0 < len(split.thick) < 43
    dense = rows.toarray()
    np.testing.assert_allclose(symmetrise(pair_gram(split, weights)), dense.T * weights @ dense, atol=1e-12)
    A = rng.standard_normal((64, 64))
    A = A @ A.T
    np.testing.assert_allclose(pair_squares(split, A), np.einsum("nd,de,ne->n", dense, A, dense), rtol=1e-12)


@pytest.mark.parametrize("engine", ["lvb", "gkl", engines.ExpectationPropagation(power=0.9), "map"], ids=str)
def test_sparse_and_dense_filters_give_one_posterior(engine):
    rng = np.random.default_rng(1)
    filters = sparse.csr_array(sparse.vstack([finite_differences((4, 4)), wavelet_transform((4, 4))]))
    M, y = rng.standard_normal((5, 16)), rng.standard_normal(5)

    def fitted(matrix):
        sites = SiteFactor(matrix, potentials.Laplace(scale=0.3))
        return infer(LatentLinearModel([GaussianFactor(y, 0.05, H=M), sites]), engine)

    thin, thick = fitted(filters), fitted(filters.toarray())
    np.testing.assert_allclose(thin.mean, thick.mean, atol=1e-5)
    if thin.evidence_kind != "none":
        assert thin.log_evidence == pytest.approx(thick.log_evidence, abs=1e-6)
        np.testing.assert_allclose(thin.variance, thick.variance, atol=1e-5)
