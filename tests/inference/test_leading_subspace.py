"""Leading eigenvectors of HᵀΓH by a filter, against those of the dense matrix."""

import numpy as np
import pytest
from scipy import sparse

from latlin.densities.structured.rows import DenseRows, SparseRows
from latlin.inference.gaussian_kl import leading_subspace
from latlin.inference.gaussian_kl.leading_subspace import improve_leading, start_leading

RNG = np.random.default_rng(0)
#: columns by Zipf's law: one eigenvalue far above the others
WORDS = sparse.csr_array(RNG.poisson(8.0 / np.arange(1, 121) ** 0.8, (300, 120)).astype(float))
WEIGHTS = RNG.gamma(2.0, size=300)
RANK = 20


def exact(rows, weights):
    values, vectors = np.linalg.eigh(rows.T @ (weights[:, None] * rows))
    return values[::-1], vectors[:, ::-1]


def missed(basis, vectors):
    """Sine of the largest angle between the vectors and the span of the basis."""
    return np.linalg.norm(vectors - basis @ (basis.T @ vectors), 2)


@pytest.mark.parametrize(
    ("make", "count"),
    [(SparseRows, 300), (lambda x: DenseRows(x.toarray()), 300), (SparseRows, 100)],
    ids=["sparse", "dense", "fewer rows than columns"],
)
def test_steps_lead_to_the_eigenvectors(make, count, monkeypatch):
    monkeypatch.setattr(leading_subspace, "COLUMNS", 6)
    rows, weights = make(WORDS[:count]), WEIGHTS[:count]
    values, vectors = exact(WORDS[:count].toarray(), weights)
    found = start_leading(rows, weights, RANK)
    sums = [found.values.sum()]
    for _ in range(12):
        found = improve_leading(rows, weights, found)
        sums.append(found.values.sum())
        np.testing.assert_allclose(found.basis.T @ found.basis, np.eye(RANK), atol=1e-13)
    assert sums[0] > 0.97 * values[:RANK].sum(), "a good start already"
    assert np.all(np.diff(sums) > -1e-10 * sums[0])
    assert sums[-1] == pytest.approx(values[:RANK].sum(), rel=1e-5), "λ_20 and λ_21 are close"
    assert missed(found.basis, vectors[:, : RANK // 2]) < 1e-5
    np.testing.assert_allclose(found.values[: RANK // 2], values[: RANK // 2], rtol=1e-8)


@pytest.mark.parametrize("count", [300, 100])
def test_a_basis_for_other_weights_is_a_better_start_than_none(count):
    rows, weights = SparseRows(WORDS[:count]), WEIGHTS[:count]
    other = weights * np.random.default_rng(1).uniform(0.8, 1.25, count)
    best = exact(WORDS[:count].toarray(), other)[0][:RANK].sum()
    found = start_leading(rows, weights, RANK)
    for _ in range(3):
        found = improve_leading(rows, weights, found)
    kept = found.basis.copy()
    warm = improve_leading(rows, other, found)
    assert np.array_equal(found.basis, kept), "the last basis is not touched"
    assert best - warm.values.sum() < 0.3 * (best - start_leading(rows, other, RANK).values.sum())


def test_eigenvalues_that_span_many_decades():
    rows = RNG.standard_normal((30, 40)) * np.logspace(0.0, -5.0, 30)[:, None]
    found = start_leading(DenseRows(rows), np.ones(30), 20)
    np.testing.assert_allclose(found.basis.T @ found.basis, np.eye(20), atol=1e-12)
    np.testing.assert_allclose(found.values[:5], exact(rows, np.ones(30))[0][:5], rtol=1e-8)


def test_fewer_rows_than_columns_asked_for():
    rows = RNG.standard_normal((4, 40))
    found = improve_leading(DenseRows(rows), np.ones(4), start_leading(DenseRows(rows), np.ones(4), 9))
    np.testing.assert_allclose(found.basis.T @ found.basis, np.eye(9), atol=1e-12)
    np.testing.assert_allclose(found.values[:4], exact(rows, np.ones(4))[0][:4], rtol=1e-10)
    np.testing.assert_allclose(found.values[4:], 0.0, atol=1e-10)
    assert missed(found.basis, np.linalg.qr(rows.T)[0]) < 1e-10
