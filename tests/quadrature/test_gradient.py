"""Quadrature gradients of a variational bound against dense quadrature, and against Monte Carlo."""

import numpy as np
import pytest

from latlin.quadrature import GaussianQuadratureGradient, score_gradient
from latlin.quadrature.gradient import _functionals, _quadratic
from latlin.quadrature.kernels import KERNELS, Components, kernel_double_mean, kernel_mean
from latlin.quadrature.surrogate import Hyperparameters, condition

MEAN = np.array([0.4, -0.3])
COV = np.array([[0.5, 0.2], [0.2, 0.4]])
ROWS = np.random.default_rng(0).standard_normal((25, 2))
SIGNS = np.where(ROWS @ [1.0, -1.0] > 0.0, 1.0, -1.0)


def log_joint(t):
    return -np.logaddexp(0.0, -(t @ ROWS.T) * SIGNS).sum(axis=1) - 0.5 * np.sum(t**2, axis=1)


def exact(mean, cov):
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
    w = np.outer(weights, weights).ravel() / (2.0 * np.pi)
    factor = np.linalg.cholesky(cov)
    entropy = 1.0 + np.log(2.0 * np.pi) + np.log(np.diagonal(factor)).sum()
    return w @ log_joint(mean + grid @ factor.T) + entropy


def exact_gradients(h=1e-4):
    shifts = h * np.eye(2)
    by_mean = np.array([(exact(MEAN + e, COV) - exact(MEAN - e, COV)) / (2.0 * h) for e in shifts])
    by_cov = np.empty((2, 2))
    for i in range(2):
        for j in range(2):
            e = np.zeros((2, 2))
            e[i, j] += 0.5 * h
            e[j, i] += 0.5 * h
            by_cov[i, j] = (exact(MEAN, COV + e) - exact(MEAN, COV - e)) / (2.0 * h)
    return by_mean, by_cov


def moved(mean, cov):
    return Components(np.ones(1), mean[None], cov[None])


def test_functionals_are_derivatives_of_the_kernel_mean():
    rng = np.random.default_rng(1)
    z = rng.standard_normal((14, 2))
    h = Hyperparameters(np.array([0.9, 1.4]), 1e-6)
    process = condition(KERNELS["rbf"], _quadratic, z, rng.standard_normal(14), h)
    prior, cross, basis = _functionals(process)
    step, eye = 1e-5, np.eye(2)

    def means(m, s):
        return kernel_mean(KERNELS["rbf"], h.lengths, moved(m, s), z)

    np.testing.assert_allclose(cross[:, 0], means(np.zeros(2), eye), rtol=1e-12)
    for i in range(2):
        numeric = (means(step * eye[i], eye) - means(-step * eye[i], eye)) / (2.0 * step)
        np.testing.assert_allclose(cross[:, 1 + i], numeric, atol=1e-9)
        diagonal = np.diag(step * eye[i])
        numeric = (means(np.zeros(2), eye + diagonal) - means(np.zeros(2), eye - diagonal)) / (2.0 * step)
        np.testing.assert_allclose(cross[:, 3 + 3 * i], numeric, atol=1e-9)
    assert prior[0] == pytest.approx(kernel_double_mean(KERNELS["rbf"], h.lengths, moved(np.zeros(2), eye)))
    # E[1], E[z₁], E[z₂], E[z₁²], E[z₁z₂], E[z₂²] and their derivatives in m and S
    np.testing.assert_array_equal(basis[0], [1, 0, 0, 1, 0, 1])
    np.testing.assert_array_equal(basis[1], [0, 1, 0, 0, 0, 0])
    expected = np.zeros((4, 6))
    expected[[0, 3], [3, 5]] = 1.0
    expected[1:3, 4] = 0.5
    np.testing.assert_array_equal(basis[3:], expected)


def test_prior_variances_are_derivatives_of_the_double_mean():
    z = np.random.default_rng(2).standard_normal((10, 2))
    h = Hyperparameters(np.array([0.9, 1.4]), 1e-6)
    prior, _, _ = _functionals(condition(KERNELS["rbf"], _quadratic, z, z[:, 0] ** 3, h))
    step = 1e-2

    def double(delta):
        # ∬ k N(x|m, I) N(x′|m′, I) depends on δ = m − m′ alone
        return kernel_mean(KERNELS["rbf"], h.lengths, moved(np.zeros(2), 2.0 * np.eye(2)), delta[None])[0]

    def second(delta, i):
        e = step * np.eye(2)[i]
        return (double(delta + e) - 2.0 * double(delta) + double(delta - e)) / step**2

    # ∂m_i∂m′_i = −∂²_δ;  ¼∂⁴ for the covariances, which differentiate the mean twice
    np.testing.assert_allclose(prior[1:3], [-second(np.zeros(2), i) for i in range(2)], rtol=1e-3)
    for i in range(2):
        for j in range(2):
            e = step * np.eye(2)[j]
            fourth = (second(e, i) - 2.0 * second(0.0 * e, i) + second(-e, i)) / step**2
            assert prior[3 + 2 * i + j] == pytest.approx(0.25 * fourth, rel=1e-2)


def test_gradient_of_a_logistic_posterior_is_within_its_error_bar():
    by_mean, by_cov = exact_gradients()
    got = GaussianQuadratureGradient(log_joint, samples=24).estimate(MEAN, COV, random_state=0)
    assert abs(got.elbo - exact(MEAN, COV)) < 4.0 * got.elbo_sd + 1e-6
    assert np.all(np.abs(got.mean - by_mean) < 5.0 * got.mean_sd + 1e-6)
    assert np.all(np.abs(got.cov - by_cov) < 5.0 * got.cov_sd + 1e-6)


def test_it_beats_the_score_function_at_equal_evaluations():
    by_mean, by_cov = exact_gradients()
    engine = GaussianQuadratureGradient(log_joint, samples=16)

    def error(estimate):
        return np.sum((estimate.mean - by_mean) ** 2) + np.sum((estimate.cov - by_cov) ** 2)

    quadrature = [error(engine.estimate(MEAN, COV, random_state=s)) for s in range(6)]
    score = [error(score_gradient(log_joint, MEAN, COV, 16, random_state=s)) for s in range(6)]
    assert np.sqrt(np.mean(quadrature)) < 0.1 * np.sqrt(np.mean(score))


def test_evaluations_serve_again():
    engine = GaussianQuadratureGradient(log_joint, samples=12)
    first = engine.estimate(MEAN, COV, random_state=0)
    second = engine.estimate(MEAN + 0.05, COV, known=first.evaluations, random_state=1)
    alone = engine.estimate(MEAN + 0.05, COV, random_state=1)
    assert len(second.evaluations.values) == 24
    assert np.all(second.mean_sd < alone.mean_sd)


def test_score_gradient_is_unbiased():
    by_mean, by_cov = exact_gradients()
    got = score_gradient(log_joint, MEAN, COV, 100_000, random_state=0)
    assert np.all(np.abs(got.mean - by_mean) < 5.0 * got.mean_sd)
    assert np.all(np.abs(got.cov - by_cov) < 8.0 * got.cov_sd)


def test_too_few_samples_are_named():
    with pytest.raises(ValueError, match="samples must give at least 8 evaluations near q, got 4"):
        GaussianQuadratureGradient(log_joint, samples=4).estimate(MEAN, COV, random_state=0)
