"""Cholesky and the products of a full covariance, against numpy on random matrices."""

import numpy as np
import pytest

from latlin.numerics.linalg import (
    cholesky,
    gram,
    log_det,
    rough_gram,
    rough_whitened_squares,
    solve_upper,
    symmetrise,
    whitened_squares,
)

rng = np.random.default_rng(0)
A = (lambda b: b @ b.T + 0.1 * np.eye(6))(rng.standard_normal((6, 6)))
ROWS = rng.standard_normal((2500, 6))


def test_factor_and_everything_made_of_it():
    chol = cholesky(A)
    inverse = np.linalg.inv(A)
    b = rng.standard_normal((6, 3))
    assert chol.jitter == 0.0
    np.testing.assert_allclose(chol.factor.T @ chol.factor, A, atol=1e-12)
    np.testing.assert_array_equal(chol.factor, np.triu(chol.factor))
    assert chol.log_det == pytest.approx(np.linalg.slogdet(A)[1], abs=1e-12)
    assert log_det(chol.factor) == pytest.approx(chol.log_det)
    np.testing.assert_allclose(chol.solve(b), inverse @ b, atol=1e-11)
    np.testing.assert_allclose(chol.solve(b[:, 0]), inverse @ b[:, 0], atol=1e-11)
    np.testing.assert_allclose(chol.inverse(), inverse, atol=1e-11)
    np.testing.assert_allclose(chol.inverse_diagonal(), np.diag(inverse), atol=1e-11)
    np.testing.assert_allclose((chol.whiten(b) ** 2).sum(axis=0), np.diag(b.T @ inverse @ b), atol=1e-11)
    np.testing.assert_allclose(chol.unwhiten(np.eye(6)) @ chol.unwhiten(np.eye(6)).T, inverse, atol=1e-11)
    np.testing.assert_allclose(solve_upper(chol.factor, b), np.linalg.solve(chol.factor, b), atol=1e-12)


def test_the_lower_triangle_is_not_read():
    np.testing.assert_array_equal(cholesky(np.triu(A)).factor, cholesky(A).factor)
    np.testing.assert_allclose(symmetrise(np.triu(A)), A)


@pytest.mark.parametrize("n", [1, 7, 300])
@pytest.mark.parametrize("order", ["C", "F"])
def test_symmetrise_reads_the_upper_triangle_alone_and_leaves_its_argument(n, order):
    a = np.array(np.random.default_rng(n).standard_normal((n, n)), order=order)
    expected = np.triu(a) + np.triu(a, 1).T
    a[np.tril_indices(n, -1)] = np.nan
    kept = a.copy()
    for _ in range(2):
        full = symmetrise(a)
        np.testing.assert_array_equal(full, expected)
        full[:] = 0.0
    np.testing.assert_array_equal(a, kept)


def test_jitter_is_reported_and_only_where_allowed():
    singular = np.ones((4, 4))
    with pytest.raises(ValueError, match="K is not positive definite"):
        cholesky(singular, name="K")
    chol = cholesky(singular, max_jitter=1e-6)
    assert 0.0 < chol.jitter <= 1e-6
    np.testing.assert_allclose(chol.factor.T @ chol.factor, singular + chol.jitter * np.eye(4), atol=1e-14)


def test_an_indefinite_matrix_gets_no_jitter_that_hides_it():
    with pytest.raises(ValueError, match="not positive definite"):
        cholesky(np.diag([1.0, -1.0]), max_jitter=1e-6)


@pytest.mark.parametrize("sign", ["positive", "mixed", "none"])
def test_gram_of_weighted_rows(sign):
    weights = {"positive": rng.random(2500), "mixed": rng.standard_normal(2500), "none": None}[sign]
    expected = ROWS.T @ ((1.0 if weights is None else weights[:, None]) * ROWS)
    np.testing.assert_allclose(symmetrise(gram(ROWS, weights)), expected, atol=1e-9)


def test_a_rough_gram_matrix_has_seven_digits():
    weights = rng.random(2500)
    exact, rough = gram(ROWS, weights), rough_gram(ROWS, weights)
    assert np.triu(rough) == pytest.approx(np.triu(exact), abs=1e-6 * np.abs(exact).max())
    assert not np.array_equal(rough, exact)


@pytest.mark.parametrize(("scale", "sign"), [(1e3, 1.0), (1e25, 1.0), (1.0, -1.0)])
def test_a_rough_gram_matrix_is_exact_where_seven_digits_are_too_few(scale, sign):
    weights = sign * rng.random(2500)
    np.testing.assert_array_equal(rough_gram(scale * ROWS, weights), gram(scale * ROWS, weights))


def test_whitened_squares_are_projected_variances():
    variances = np.einsum("ni,ij,nj->n", ROWS, np.linalg.inv(A), ROWS)
    np.testing.assert_allclose(whitened_squares(cholesky(A).factor, ROWS), variances, rtol=1e-10)


def test_rough_variances_have_six_digits():
    factor = cholesky(A).factor
    exact, rough = whitened_squares(factor, ROWS), rough_whitened_squares(factor, ROWS)
    np.testing.assert_allclose(rough, exact, rtol=1e-5)
    assert not np.array_equal(rough, exact)


def test_rough_variances_are_exact_where_the_covariance_is_large():
    factor = 1e-7 * cholesky(A).factor
    np.testing.assert_array_equal(rough_whitened_squares(factor, ROWS), whitened_squares(factor, ROWS))


def test_a_matrix_without_rows_is_its_own_factor():
    found = cholesky(np.zeros((0, 0)))
    assert found.factor.shape == (0, 0)
    assert found.log_det == 0.0
