"""Conjugate families against quadrature, scipy's densities and Monte Carlo."""

import numpy as np
import pytest
from scipy import integrate, stats

from latlin.densities import conjugate


def expect(density, f, lower, upper):
    return integrate.quad(lambda t: density(t) * f(t), lower, upper, limit=400, epsabs=1e-12)[0]


@pytest.mark.parametrize(("a", "b"), [(0.7, 2.3), (4.0, 1.5)])
def test_beta_and_two_dimensional_dirichlet_agree_with_quadrature(a, b):
    q, p = stats.beta(a, b), stats.beta(1.3, 0.8)
    alpha, prior = np.array([a, b]), np.array([1.3, 0.8])
    kl = expect(q.pdf, lambda t: q.logpdf(t) - p.logpdf(t), 0, 1)
    assert conjugate.beta_kl(np.array(a), np.array(b), 1.3, 0.8) == pytest.approx(kl, rel=1e-7)
    assert conjugate.dirichlet_kl(alpha, prior) == pytest.approx(kl, rel=1e-7)
    expected = expect(q.pdf, np.log, 0, 1)
    assert conjugate.dirichlet_expected_log(alpha)[0] == pytest.approx(expected, rel=1e-7)
    assert conjugate.beta_expected_logs(np.array(a), np.array(b))[1] == pytest.approx(
        expect(q.pdf, lambda t: np.log1p(-t), 0, 1), rel=1e-7
    )


def test_dirichlet_entropy_and_normaliser_agree_with_scipy():
    alpha = np.array([0.4, 2.0, 5.5])
    point = np.array([0.2, 0.3, 0.5])
    density = conjugate.dirichlet_log_normaliser(alpha) + ((alpha - 1) * np.log(point)).sum()
    assert density == pytest.approx(stats.dirichlet.logpdf(point, alpha), rel=1e-12)
    assert conjugate.dirichlet_entropy(alpha) == pytest.approx(stats.dirichlet(alpha).entropy(), rel=1e-12)


def test_gamma_agrees_with_quadrature():
    q, p = stats.gamma(2.5, scale=1 / 1.7), stats.gamma(0.9, scale=1 / 0.6)
    kl = expect(q.pdf, lambda t: q.logpdf(t) - p.logpdf(t), 0, np.inf)
    assert conjugate.gamma_kl(np.array(2.5), np.array(1.7), 0.9, 0.6) == pytest.approx(kl, rel=1e-8)
    assert conjugate.gamma_entropy(np.array(2.5), np.array(1.7)) == pytest.approx(q.entropy(), rel=1e-12)
    expected = expect(q.pdf, np.log, 0, np.inf)
    assert conjugate.gamma_expected_log(np.array(2.5), np.array(1.7)) == pytest.approx(expected, rel=1e-8)


def test_wishart_in_one_dimension_is_a_gamma():
    nu, psi, nu0, psi0 = 4.2, 1.9, 3.0, 0.7
    kl = conjugate.wishart_kl(nu, np.log(psi), nu0, np.log(psi0), psi0 / psi, 1)
    assert kl == pytest.approx(conjugate.gamma_kl(np.array(nu / 2), np.array(psi / 2), nu0 / 2, psi0 / 2), rel=1e-12)


def test_wishart_entropy_density_and_divergence():
    nu, nu0 = 6.5, 5.0
    scale = np.array([[2.0, 0.6, 0.1], [0.6, 1.5, -0.3], [0.1, -0.3, 0.9]])
    scale0 = np.diag([1.0, 0.5, 2.0])
    q = stats.wishart(nu, np.linalg.inv(scale))
    p = stats.wishart(nu0, np.linalg.inv(scale0))
    log_det, log_det0 = np.linalg.slogdet(scale)[1], np.linalg.slogdet(scale0)[1]
    assert conjugate.wishart_entropy(nu, log_det, 3) == pytest.approx(q.entropy(), rel=1e-10)
    draws = q.rvs(40_000, random_state=3)
    terms = q.logpdf(np.moveaxis(draws, 0, -1)) - p.logpdf(np.moveaxis(draws, 0, -1))
    kl = conjugate.wishart_kl(nu, log_det, nu0, log_det0, np.trace(scale0 @ np.linalg.inv(scale)), 3)
    assert abs(terms.mean() - kl) < 4 * terms.std() / 200
    log_dets = np.linalg.slogdet(draws)[1]
    expected = conjugate.wishart_expected_log_det(nu, log_det, 3)
    assert abs(log_dets.mean() - expected) < 4 * log_dets.std() / 200


def test_normal_divergences_agree_with_monte_carlo():
    rng = np.random.default_rng(1)
    mean, cov = np.array([[0.3, -1.0]]), np.array([[[1.2, 0.4], [0.4, 0.5]]])
    prior_mean, prior_cov = np.array([1.0, 0.5]), np.array([[2.0, -0.3], [-0.3, 1.0]])
    q = stats.multivariate_normal(mean[0], cov[0])
    p = stats.multivariate_normal(prior_mean, prior_cov)
    draws = q.rvs(40_000, random_state=rng)
    terms = q.logpdf(draws) - p.logpdf(draws)
    kl = conjugate.gaussian_kl(mean, cov, prior_mean, np.linalg.inv(prior_cov))[0]
    assert abs(terms.mean() - kl) < 4 * terms.std() / 200


def test_precision_weighted_divergence_is_the_gaussian_one_when_the_precision_is_known():
    precision = np.array([[1.5, 0.2], [0.2, 0.8]])
    mean, prior = np.array([[0.4, -0.2]]), np.array([1.0, 0.0])
    beta, beta0 = 5.0, 0.3
    square = (mean[0] - prior) @ precision @ (mean[0] - prior)
    weighted = conjugate.precision_weighted_kl(np.array([beta]), beta0, np.array([square]), 2)
    plain = conjugate.gaussian_kl(mean, np.linalg.inv(beta * precision)[None], prior, beta0 * precision)
    assert weighted[0] == pytest.approx(plain[0], rel=1e-12)
