"""Counts that are none are refused by name, where users meet them."""

import warnings

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, compare, infer
from latlin.factor import BinaryFactorAnalysis, FactorAnalysis, GroupFactorAnalysis, MixedFactorAnalysis
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor
from latlin.linear import BayesianLinearRegression, BayesianLogisticRegression
from latlin.mixture import BayesianGaussianMixture
from latlin.numerics.options import check_whole

MODEL = LatentLinearModel([GaussianFactor(dim=2)])
X, Y = np.arange(12.0)[:, None], np.arange(12) % 2


@pytest.mark.parametrize("value", [-1, 1.5, "a", None, True])
def test_what_is_no_count(value):
    with pytest.raises(ValueError, match="n_samples must be an integer of at least 0"):
        check_whole("n_samples", value)


def test_counts_pass():
    assert check_whole("n", np.int64(4), 4) == 4


def test_draws():
    with pytest.raises(ValueError, match="count must be an integer"):
        infer(MODEL, "laplace").sample(-1)


def test_no_engines():
    with pytest.raises(ValueError, match="at least one engine"):
        compare(MODEL, [])


@pytest.mark.parametrize(
    ("arguments", "match"),
    [({"n_restarts": -1}, "n_restarts"), ({"kernel": "rbf"}, "kernel must be a kernel of"), ({"max_iter": 0}, "max_i")],
)
def test_gaussian_processes(arguments, match):
    for estimator in (GaussianProcessClassifier, GaussianProcessRegressor):
        with pytest.raises(ValueError, match=match):
            estimator(**arguments).fit(X, Y)


@pytest.mark.parametrize(
    "fitted",
    [
        BayesianGaussianMixture(1),
        FactorAnalysis(1),
        GroupFactorAnalysis(1),
        BinaryFactorAnalysis(1, n_init=1),
        MixedFactorAnalysis(1),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_draws_of_unsupervised_models(fitted):
    rows = np.abs(np.random.default_rng(0).standard_normal((30, 3)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted.fit(rows)
    with pytest.raises(ValueError, match="n_samples must be an integer"):
        fitted.sample(-1)


def test_draws_and_levels_of_linear_models():
    classifier, regression = BayesianLogisticRegression().fit(X, Y), BayesianLinearRegression().fit(X, Y)
    for draw in (classifier.sample_posterior, lambda n: classifier.sample_y(X, n), lambda n: regression.sample_y(X, n)):
        with pytest.raises(ValueError, match="n_samples must be an integer"):
            draw(1.5)
    for ask in (classifier.summary, lambda coverage: regression.predict_interval(X, coverage)):
        with pytest.raises(ValueError, match="coverage must hold probabilities"):
            ask("a")
    with pytest.raises(ValueError, match="intercept_scale must be a number of at least"):
        BayesianLogisticRegression(intercept_scale="a").fit(X, Y)
