"""Where the answer is known: conjugate models, scikit-learn's ridge and logistic regression, brute force."""

import numpy as np
import pytest
import sklearn
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.utils.fixes import parse_version

from latlin.linear import BayesianLinearRegression, BayesianLogisticRegression
from latlin.linear._fitting import spectrum
from latlin.priors import Flat
from linear_data import responses


def regression(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = 3.0 * rng.standard_normal((n, d)) + 1.0
    return X, X @ rng.standard_normal(d) + rng.standard_normal(n)


@pytest.mark.parametrize(("n", "d"), [(60, 5), (20, 40)])
@pytest.mark.parametrize("engine", ["auto", "gkl", "laplace"])
def test_bayesian_ridge_at_equal_precisions(n, d, engine):
    if n < d and parse_version(sklearn.__version__) < parse_version("1.7"):
        pytest.skip("covariances of this BayesianRidge leave out directions without data")
    X, y = regression(n, d)
    flat = {"alpha_1": 0.0, "alpha_2": 0.0, "lambda_1": 0.0, "lambda_2": 0.0}
    ridge = BayesianRidge(**flat, fit_intercept=False, compute_score=True, max_iter=2000, tol=1e-12).fit(X, y)
    scales = {"prior_scale": ridge.lambda_**-0.5, "noise_scale": ridge.alpha_**-0.5}
    model = BayesianLinearRegression(engine=engine, fit_intercept=False, standardise=False, **scales).fit(X, y)
    np.testing.assert_allclose(model.coef_, ridge.coef_, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(model.coef_std_, np.sqrt(np.diag(ridge.sigma_)), rtol=1e-10)
    assert model.log_evidence_ == pytest.approx(ridge.scores_[-1], rel=1e-10)
    assert model.evidence_kind_ == "exact"
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose((mean, std), ridge.predict(X, return_std=True), rtol=1e-9)


def test_learnt_scales_are_those_of_bayesian_ridge():
    X, y = regression(60, 5)
    ridge = BayesianRidge(alpha_1=0, alpha_2=0, lambda_1=0, lambda_2=0, fit_intercept=False, max_iter=5000, tol=1e-14)
    ridge.fit(X, y)
    plain = {"hyperparameters": "maximise", "priors": Flat()}
    model = BayesianLinearRegression(fit_intercept=False, standardise=False, **plain).fit(X, y)
    assert model.prior_scale_ == pytest.approx(ridge.lambda_**-0.5, rel=1e-5)
    assert model.noise_scale_ == pytest.approx(ridge.alpha_**-0.5, rel=1e-5)


def test_an_intercept_with_a_flat_prior_is_that_of_centred_data():
    X, y = regression(50, 4)
    ridge = BayesianRidge(alpha_1=0, alpha_2=0, lambda_1=0, lambda_2=0, max_iter=2000, tol=1e-12).fit(X, y)
    scales = {"prior_scale": ridge.lambda_**-0.5, "noise_scale": ridge.alpha_**-0.5}
    model = BayesianLinearRegression(**scales, standardise=False, intercept_scale=1e4).fit(X, y)
    np.testing.assert_allclose(model.coef_, ridge.coef_, rtol=1e-4)
    assert model.intercept_ == pytest.approx(ridge.intercept_, rel=1e-4)


@pytest.mark.parametrize(("n", "d"), [(12, 3), (5, 8)])
@pytest.mark.parametrize("standardise", [True, False])
def test_the_evidence_is_that_of_a_multivariate_normal(n, d, standardise):
    X, y = regression(n, d)
    model = BayesianLinearRegression(prior_scale=0.7, noise_scale=0.4, standardise=standardise, intercept_scale=3.0)
    model.fit(X, y)
    centre = X.mean(axis=0) if standardise else 0.0
    spread = X.std(axis=0) if standardise else 1.0
    Z = (X - centre) / spread
    covariance = 0.49 * Z @ Z.T + 9.0 + 0.16 * np.eye(n)
    expected = multivariate_normal(np.full(n, y.mean()), covariance).logpdf(y)
    assert model.log_evidence_ == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("n", "d"), [(12, 3), (5, 8)])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_one_decomposition_gives_evidence_and_gradient(n, d, weighted, intercept):
    X, y = regression(n, d)
    weight = np.linspace(0.5, 2.0, n) if weighted else None
    model = BayesianLinearRegression(prior_scale=0.7, noise_scale=0.4, fit_intercept=intercept, standardise=False)
    model.fit(X, y, sample_weight=weight)
    (problem,) = model._problems(X, [y], weight, None)
    data = spectrum(problem)
    point = np.log([0.7, 0.4])
    value, gradient = data.log_evidence(*point)
    assert value == pytest.approx(model.log_evidence_, rel=1e-9)
    numeric = approx_fprime(point, lambda t: data.log_evidence(*t)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("n", "d"), [(30, 4), (5, 8)])
def test_large_rows_go_another_way_to_the_same_posterior(n, d, monkeypatch):
    X, y = regression(n, d)
    weight, offset = np.linspace(0.5, 2.0, n), np.linspace(-1.0, 1.0, n)
    model = BayesianLinearRegression(prior_scale=0.7, noise_scale=0.4)
    small = model.fit(X, y, sample_weight=weight, offset=offset)
    kept = small.coef_.copy(), small.log_evidence_, small.posterior_.covariance()
    monkeypatch.setattr("latlin.inference.exact.DECOMPOSED", 0)
    large = model.fit(X, y, sample_weight=weight, offset=offset)
    np.testing.assert_allclose(large.coef_, kept[0], rtol=1e-8)
    assert large.log_evidence_ == pytest.approx(kept[1], rel=1e-10)
    np.testing.assert_allclose(large.posterior_.covariance(), kept[2], rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("prior_scale", [0.3, 2.0])
def test_the_mode_is_that_of_penalised_logistic_regression(prior_scale):
    X, y = responses()[0] / 10.0, responses()[1]["labels"]
    mode = BayesianLogisticRegression(
        engine="map", prior_scale=prior_scale, standardise=False, intercept_scale=1e3
    ).fit(X, y)
    peer = LogisticRegression(C=prior_scale**2, tol=1e-12, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(mode.coef_, peer.coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(mode.intercept_, peer.intercept_, rtol=1e-4)
    assert mode.evidence_kind_ == "none"
    assert not mode.coef_std_.any()
