"""The bound: exact for one component, below the brute-force evidence for two, never falling."""

from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp, multigammaln

from latlin.mixture import BayesianGaussianMixture
from latlin.mixture.fixed import KnownCovariance
from latlin.mixture.gamma import DiagonalPrecision, Spherical
from latlin.mixture.model import DirichletWeights, Mixture, StickWeights
from latlin.mixture.moments import combine, gather_moments
from latlin.mixture.sweep import make_rows
from latlin.mixture.wishart import Tied, WishartPrecision

COVARIANCES = ["fixed", "spherical", "diagonal", "full", "tied"]
MEAN = np.array([0.5, -0.3])
SCALE = np.array([[1.4, 0.3], [0.3, 0.8]])


def structure(name, dim=2):
    mean, scale = MEAN[:dim], SCALE[:dim, :dim]
    return {
        "fixed": lambda: KnownCovariance(mean, 5.0 * np.eye(dim) + 0.5, scale),
        "spherical": lambda: Spherical(mean, 0.2, 3.5, np.asarray(1.2)),
        "diagonal": lambda: DiagonalPrecision(mean, 0.2, 3.5, np.diagonal(scale).copy()),
        "full": lambda: WishartPrecision(mean, 0.2, 4.5, scale),
        "tied": lambda: Tied(mean, 0.2, 4.5, scale),
    }[name]()


def wishart_evidence(x, mean, beta, dof, scale):
    """ln p(x) under a normal-Wishart prior."""
    n, dim = x.shape
    centre = x.mean(axis=0)
    away = centre - mean
    scatter = (x - centre).T @ (x - centre) + beta * n / (beta + n) * np.outer(away, away)
    return (
        -0.5 * n * dim * np.log(np.pi)
        + multigammaln(0.5 * (dof + n), dim)
        - multigammaln(0.5 * dof, dim)
        + 0.5 * dof * np.linalg.slogdet(scale)[1]
        - 0.5 * (dof + n) * np.linalg.slogdet(scale + scatter)[1]
        + 0.5 * dim * np.log(beta / (beta + n))
    )


def spherical_evidence(x, mean, beta, dof, scale):
    n, dim = x.shape
    centre = x.mean(axis=0)
    scatter = ((x - centre) ** 2).sum() + beta * n / (beta + n) * ((centre - mean) ** 2).sum()
    after = dof + n * dim
    return (
        -0.5 * n * dim * np.log(np.pi)
        + gammaln(0.5 * after)
        - gammaln(0.5 * dof)
        + 0.5 * dof * np.log(scale)
        - 0.5 * after * np.log(scale + scatter)
        + 0.5 * dim * np.log(beta / (beta + n))
    )


def evidence(name, x):
    """ln p(x) of one component in closed form."""
    if len(x) == 0:
        return 0.0
    s = structure(name, x.shape[1])
    n = len(x)
    if name == "fixed":
        cov = np.kron(np.eye(n), s.covariance) + np.kron(np.ones((n, n)), s.prior_covariance)
        return stats.multivariate_normal.logpdf(x.ravel(), np.tile(s.prior_mean, n), cov)
    prior = (s.prior_mean, s.prior_strength, s.prior_dof)
    if name == "spherical":
        return spherical_evidence(x, *prior, float(s.prior_scale))
    if name == "diagonal":
        parts = zip(x.T, s.prior_mean, s.prior_scale, strict=True)
        return sum(wishart_evidence(c[:, None], m, s.prior_strength, s.prior_dof, np.array([[v]])) for c, m, v in parts)
    return wishart_evidence(x, *prior, s.prior_scale)


def climb(mixture, data, moments, steps):
    bounds = []
    for _ in range(steps):
        bound, moments = mixture.evaluate(data, mixture.belief(moments))
        bounds.append(bound)
    return np.array(bounds), moments


@pytest.mark.parametrize("name", COVARIANCES)
def test_one_component_gives_the_exact_evidence(name):
    x = np.random.default_rng(2).normal(size=(9, 2)) * [1.5, 0.7] + 1.0
    mixture = Mixture(DirichletWeights(0.7, 1), structure(name))
    moments = gather_moments(mixture.components, x, np.ones(9), np.zeros(9, dtype=int), 1)
    bounds, _ = climb(mixture, make_rows(x, None), moments, 2)
    assert bounds[-1] == pytest.approx(evidence(name, x), rel=1e-12)


@pytest.mark.parametrize("name", COVARIANCES)
def test_predictive_density_is_the_ratio_of_evidences(name):
    x = np.random.default_rng(3).normal(size=(7, 2))
    mixture = Mixture(DirichletWeights(0.7, 1), structure(name))
    moments = gather_moments(mixture.components, x[:-1], np.ones(6), np.zeros(6, dtype=int), 1)
    predicted = mixture.log_predictive(x[-1:], mixture.belief(moments))[0]
    assert predicted == pytest.approx(evidence(name, x) - evidence(name, x[:-1]), rel=1e-10)


def brute_force(name, x, concentration):
    """ln Σ_Z p(X, Z) over all labellings of two components."""
    terms = []
    for labels in product([0, 1], repeat=len(x)):
        own = np.array(labels)
        counts = np.bincount(own, minlength=2)
        weights = gammaln(2 * concentration) - gammaln(2 * concentration + len(x))
        weights += (gammaln(concentration + counts) - gammaln(concentration)).sum()
        terms.append(weights + evidence(name, x[own == 0]) + evidence(name, x[own == 1]))
    return logsumexp(terms)


@pytest.mark.parametrize("name", ["fixed", "spherical", "diagonal", "full"])
def test_bound_stays_below_the_evidence_of_two_components(name):
    x = np.array([-2.1, -1.7, -2.4, 1.9, 2.6, 2.2])[:, None]
    mixture = Mixture(DirichletWeights(0.8, 2), structure(name, 1))
    moments = gather_moments(mixture.components, x, np.ones(6), (x[:, 0] > 0).astype(int), 2)
    bounds, _ = climb(mixture, make_rows(x, None), moments, 60)
    exact = brute_force(name, x, 0.8)
    assert bounds[-1] <= exact
    assert bounds[-1] > exact - 2.0  # ln 2 for the two orders of the labels, and the mean-field gap


@pytest.mark.parametrize("name", COVARIANCES)
@pytest.mark.parametrize("weights", [DirichletWeights(0.2, 5), StickWeights(1.0, 5)])
@pytest.mark.parametrize("missing", [0.0, 0.25])
def test_bound_never_falls(name, weights, missing):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(3, 2))[rng.integers(3, size=120)] * 4 + rng.normal(size=(120, 2))
    start = gather_moments(structure(name), x, np.ones(120), rng.integers(5, size=120), 5)
    x[rng.random(x.shape) < missing] = np.nan
    sample_weight = rng.gamma(3.0, size=120) / 3
    bounds, moments = climb(Mixture(weights, structure(name)), make_rows(x, sample_weight), start, 40)
    assert np.diff(bounds).min() >= -1e-10 * abs(bounds[-1])
    assert moments.counts.sum() == pytest.approx(sample_weight.sum(), rel=1e-12)


@pytest.mark.parametrize("name", COVARIANCES)
def test_natural_gradient_of_length_one_is_coordinate_ascent(name):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(90, 2)) * 2
    mixture = Mixture(DirichletWeights(0.3, 3), structure(name))
    moments = gather_moments(mixture.components, x, np.ones(90), rng.integers(3, size=90), 3)
    target = mixture.evaluate(make_rows(x, None), mixture.belief(moments)).moments
    stepped = combine(mixture.components, moments, 0.0, target, 1.0)
    for a, b in zip(stepped, target, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", COVARIANCES)
def test_fits_by_cavi_and_natural_gradient_are_the_same(name):
    rng = np.random.default_rng(6)
    x = np.concatenate([rng.normal(-3, 1, (40, 2)), rng.normal(3, 1, (40, 2))])
    same = {"covariance": name, "random_state": 0, "split_merge": 0}
    cavi = BayesianGaussianMixture(4, algorithm="cavi", **same).fit(x)
    natural = BayesianGaussianMixture(4, algorithm="natural", **same).fit(x)
    assert natural.lower_bound_ == pytest.approx(cavi.lower_bound_, rel=1e-12)
    np.testing.assert_allclose(natural.means_, cavi.means_, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", COVARIANCES)
def test_half_the_data_twice_has_the_same_moments(name):
    rng = np.random.default_rng(7)
    x, labels = rng.normal(size=(60, 2)), rng.integers(3, size=60)
    s = structure(name)
    whole = gather_moments(s, x, np.ones(60), labels, 3)
    halves = [gather_moments(s, x[part], np.ones(30), labels[part], 3) for part in (slice(0, 30), slice(30, 60))]
    for a, b in zip(combine(s, halves[0], 1.0, halves[1], 1.0), whole, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
