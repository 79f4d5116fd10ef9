"""Prior means of coefficients: given ones are those of the model, a common one is learnt from the evidence."""

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, load
from latlin.linear import BayesianLinearRegression, BayesianLogisticRegression, BayesianProbitRegression
from latlin.potentials import Logit
from latlin.priors import Flat


def alike(n=40, d=6, seed=0):
    """Rows, and responses whose coefficients lie about 1.5."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.exp(0.3 * rng.standard_normal(d))
    return X, X @ (1.5 + 0.2 * rng.standard_normal(d)) + 0.5 * rng.standard_normal(n)


def test_given_means_are_those_of_the_model():
    X, y = alike()
    labels, mean = y > 0.0, np.linspace(-1.0, 2.0, 6)
    fitted = BayesianLogisticRegression(
        prior_mean=mean, prior_scale=0.7, fit_intercept=False, standardise=False, engine="gkl"
    ).fit(X, labels)
    model = LatentLinearModel([GaussianFactor(mean, 0.49), SiteFactor(X, Logit(labels))])
    post = infer(model, "gkl")
    np.testing.assert_allclose(fitted.coef_[0], post.mean, atol=1e-5)
    assert fitted.log_evidence_ == pytest.approx(post.log_evidence, abs=1e-7)
    np.testing.assert_array_equal(fitted.prior_mean_, mean)


@pytest.mark.parametrize("standardise", [True, False])
def test_a_given_mean_is_a_shift_of_the_response(standardise, tmp_path):
    X, y = alike()
    spread = X.std(axis=0) if standardise else np.ones(6)
    # an intercept has its prior about the mean of the response, which a shift of centred features leaves as it is
    options = {"prior_scale": 0.3, "noise_scale": 0.5, "standardise": standardise, "fit_intercept": standardise}
    moved = BayesianLinearRegression(prior_mean=1.2, **options).fit(X, y)
    shift = (X - X.mean(axis=0) * standardise) @ (1.2 / spread)
    plain = BayesianLinearRegression(**options).fit(X, y - shift)
    np.testing.assert_allclose(moved.coef_, plain.coef_ + 1.2 / spread, atol=1e-9)
    assert moved.evidence_kind_ == "exact"
    moved.save(tmp_path / "moved.latlin")
    again = load(tmp_path / "moved.latlin")
    assert (again.prior_mean, again.prior_mean_) == (1.2, 1.2)
    np.testing.assert_array_equal(again.coef_, moved.coef_)


def test_a_learnt_mean_is_that_of_least_squares():
    X, y = alike()
    options = {"prior_scale": 0.3, "noise_scale": 0.5, "fit_intercept": False, "standardise": False}
    model = BayesianLinearRegression(prior_mean="auto", hyperparameters="maximise", priors=Flat(), **options).fit(X, y)
    # y ~ N(μX1, s²XXᵀ + σ²I)
    covariance, ones = 0.09 * X @ X.T + 0.25 * np.eye(len(X)), X.sum(axis=1)
    solved = np.linalg.solve(covariance, ones)
    assert model.prior_mean_ == pytest.approx(solved @ y / (solved @ ones), abs=1e-5)
    assert [row["name"] for row in model.hyperparameters_.rows] == ["prior_mean"]
    averaged = BayesianLinearRegression(prior_mean="auto", hyperparameters="integrate", **options).fit(X, y)
    assert averaged.prior_mean_ == pytest.approx(model.prior_mean_, abs=1e-3)
    assert averaged.hyperparameters_.rows[0]["sd"] == pytest.approx((solved @ ones) ** -0.5, rel=0.02)


@pytest.mark.parametrize("kind", [BayesianLogisticRegression, BayesianProbitRegression])
def test_coefficients_that_are_alike_have_a_higher_evidence_with_their_mean(kind):
    X, y = alike(60)
    zero, learnt = (kind(prior_mean=mean, hyperparameters="maximise").fit(X, y > 0.0) for mean in (0.0, "auto"))
    assert learnt.prior_mean_ > 0.5
    assert learnt.prior_scale_ < zero.prior_scale_
    assert learnt.log_evidence_ > zero.log_evidence_ + 1.0


def test_a_stream_begins_at_the_mean():
    X, y = alike()
    options = {"prior_mean": 1.0, "prior_scale": 0.3, "noise_scale": 0.5, "standardise": False, "fit_intercept": False}
    whole = BayesianLinearRegression(**options).fit(X, y)
    stream = BayesianLinearRegression(**options).partial_fit(X[:15], y[:15]).partial_fit(X[15:], y[15:])
    np.testing.assert_allclose(stream.coef_, whole.coef_, atol=1e-8)
    assert stream.log_evidence_ == pytest.approx(whole.log_evidence_, abs=1e-8)


@pytest.mark.parametrize(
    ("mean", "text"),
    [
        ("none", "prior_mean must be a number or 'auto', got 'none'"),
        ([1.0, 2.0], r"prior_mean must be 'auto' or have shape \(\) or \(6,\), got shape \(2,\)"),
        (np.inf, "prior_mean must hold numbers of at most 1e\\+140 in size"),
        (None, "prior_mean must hold finite numbers, got nan"),
    ],
)
def test_bad_means_are_named(mean, text):
    X, y = alike()
    with pytest.raises(ValueError, match=text):
        BayesianLinearRegression(prior_mean=mean).fit(X, y)
