"""Gaussians over w: every structure answers like the dense one."""

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import multivariate_normal

from latlin.densities.density import NormalMarginals, PointMass
from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import (
    CovarianceWhitening,
    DiagonalWhitening,
    PrecisionCovariance,
    PrecisionWhitening,
    SubspaceCovariance,
)
from latlin.numerics.linalg import cholesky

rng = np.random.default_rng(2)
DIM, RANK = 5, 2


def positive(dim):
    root = rng.standard_normal((dim, dim))
    return root @ root.T + 0.3 * np.eye(dim)


PRIOR = positive(DIM)
WHITENINGS = {
    "diagonal": (DiagonalWhitening(np.sqrt(np.arange(1.0, 6.0))), np.diag(np.sqrt(np.arange(1.0, 6.0)))),
    "unit": (DiagonalWhitening(np.ones(DIM)), np.eye(DIM)),
    "covariance": (CovarianceWhitening(cholesky(PRIOR).factor), cholesky(PRIOR).factor.T),
    "precision": (PrecisionWhitening(cholesky(PRIOR).factor), np.linalg.inv(cholesky(PRIOR).factor)),
}


@pytest.mark.parametrize("name", WHITENINGS)
def test_whitenings_are_their_matrices(name):
    whitening, dense = WHITENINGS[name]
    rows = rng.standard_normal((3, DIM))
    assert whitening.log_det == pytest.approx(np.linalg.slogdet(dense)[1])
    np.testing.assert_allclose(whitening.apply(rows.T), dense @ rows.T, atol=1e-12)
    np.testing.assert_allclose(whitening.apply(rows[0]), dense @ rows[0], atol=1e-12)
    np.testing.assert_allclose(whitening.solve(dense @ rows.T), rows.T, atol=1e-11)
    np.testing.assert_allclose(whitening.solve(dense @ rows[0]), rows[0], atol=1e-11)
    np.testing.assert_allclose(whitening.rows(rows), rows @ dense, atol=1e-12)
    mapped = whitening.rows(sparse.csr_array(rows))
    np.testing.assert_allclose(mapped.toarray() if sparse.issparse(mapped) else mapped, rows @ dense, atol=1e-12)


def structures():
    for name, (whitening, dense) in WHITENINGS.items():
        precision = positive(DIM)
        yield name, PrecisionCovariance(whitening, cholesky(precision)), dense @ np.linalg.inv(precision) @ dense.T
        basis = np.linalg.qr(rng.standard_normal((DIM, RANK)))[0]
        inner = positive(RANK)
        middle = basis @ np.linalg.inv(inner) @ basis.T + 0.49 * (np.eye(DIM) - basis @ basis.T)
        yield f"{name}-subspace", SubspaceCovariance(whitening, basis, cholesky(inner), 0.7), dense @ middle @ dense.T


STRUCTURES = {name: (structure, dense) for name, structure, dense in structures()}


@pytest.mark.parametrize("name", STRUCTURES)
def test_every_structure_answers_like_the_dense_covariance(name):
    structure, dense = STRUCTURES[name]
    mean = rng.standard_normal(DIM)
    gaussian, exact = Gaussian(mean, structure), multivariate_normal(mean, dense)
    points, rows = rng.standard_normal((7, DIM)), rng.standard_normal((1100, DIM))
    np.testing.assert_allclose(gaussian.covariance(), dense, atol=1e-10)
    np.testing.assert_allclose(gaussian.variance, np.diag(dense), atol=1e-10)
    np.testing.assert_allclose(gaussian.times_covariance(points[0]), dense @ points[0], atol=1e-10)
    np.testing.assert_allclose(gaussian.logpdf(points), exact.logpdf(points), atol=1e-9)
    assert gaussian.logpdf(points[0]) == pytest.approx(exact.logpdf(points[0]))
    assert gaussian.entropy == pytest.approx(exact.entropy())
    variances = np.einsum("ni,ij,nj->n", rows, dense, rows)
    for h in (rows, sparse.csr_array(rows)):
        projected = gaussian.project(h)
        np.testing.assert_allclose(projected.mean, rows @ mean, atol=1e-10)
        np.testing.assert_allclose(projected.variance, variances, rtol=1e-9)


@pytest.mark.parametrize("name", STRUCTURES)
def test_draws_have_the_moments(name):
    structure, dense = STRUCTURES[name]
    draws = Gaussian(np.full(DIM, 3.0), structure).sample(40_000, random_state=0)
    scale = np.sqrt(np.diag(dense))
    assert np.abs((draws.mean(axis=0) - 3.0) / scale).max() < 0.025  # 5 standard errors
    error = (np.cov(draws.T) - dense) / np.outer(scale, scale)
    assert np.abs(error).max() < 0.04


def test_marginals():
    marginals = NormalMarginals(np.array([0.0, 1.0]), np.array([1.0, 4.0]))
    np.testing.assert_allclose(marginals.quantile([0.5, 0.975]), [0.0, 1.0 + 2.0 * 1.959964], atol=1e-5)
    np.testing.assert_allclose(marginals.cdf(marginals.quantile(0.3)), 0.3)
    np.testing.assert_allclose(np.exp(marginals.logcdf(0.4)), marginals.cdf(0.4))
    np.testing.assert_allclose(marginals.pdf([0.0, 1.0]), [0.398942, 0.199471], atol=1e-6)


def test_a_point_has_no_density():
    point = PointMass(np.array([1.0, -2.0]))
    assert np.all(point.variance == 0.0)
    assert np.all(point.covariance() == 0.0)
    np.testing.assert_array_equal(point.sample(3), [[1.0, -2.0]] * 3)
    np.testing.assert_array_equal(point.project(np.eye(2)).mean, [1.0, -2.0])
    assert point.entropy == -np.inf
    with pytest.raises(ValueError, match="no density"):
        point.logpdf([0.0, 0.0])
