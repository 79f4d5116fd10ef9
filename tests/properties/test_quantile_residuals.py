"""Randomised quantile residuals of every kind of model: those of its own draws are standard normal."""

import numpy as np
import pandas
import pytest
from scipy.stats import kstest

from latlin.additive import AdditiveModel
from latlin.gp import GaussianProcessClassifier
from latlin.linear import (
    BayesianLogisticRegression,
    BayesianMultinomialProbitRegression,
    BayesianOrdinalRegression,
    BayesianProbitRegression,
    BayesianSoftmaxRegression,
)

N = 120
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 2))
SCORE = X @ [1.2, -0.6] + RNG.logistic(size=N)
CLASSES = np.array(["a", "b", "c"])[np.digitize(SCORE, [-0.7, 0.9])]
REPEATS = 10


def are_normal(residuals):
    """And as many as there are rows."""
    assert np.all(np.isfinite(residuals))
    return kstest(residuals, "norm").pvalue > 1e-3


@pytest.mark.parametrize(
    "model",
    [
        BayesianLogisticRegression(prior_scale=1.0),
        BayesianProbitRegression(prior_scale=1.0),
        BayesianSoftmaxRegression(prior_scale=1.0),
        BayesianMultinomialProbitRegression(prior_scale=1.0),
        BayesianOrdinalRegression(prior_scale=1.0, order=["a", "b", "c"]),
    ],
    ids=lambda model: type(model).__name__,
)
def test_classes(model):
    binary = isinstance(model, BayesianLogisticRegression | BayesianProbitRegression)
    model.fit(X, CLASSES != "a" if binary else CLASSES)
    p = model.predict_proba(np.tile(X, (REPEATS, 1)))
    rng = np.random.default_rng(1)
    drawn = model.classes_[(np.cumsum(p, axis=1)[:, :-1] < rng.random((len(p), 1))).sum(axis=1)]
    residuals = model.quantile_residuals(np.tile(X, (REPEATS, 1)), drawn, random_state=2)
    assert residuals.shape == (REPEATS * N,)
    assert are_normal(residuals)
    # classes that come too often are told
    assert not are_normal(model.quantile_residuals(X, np.full(N, model.classes_[-1]), random_state=2))


@pytest.mark.parametrize("classes", [2, 3])
def test_classes_by_processes(classes):
    labels = CLASSES if classes == 3 else CLASSES != "a"
    model = GaussianProcessClassifier(optimizer=None, hyperparameters="fixed", random_state=0).fit(X[:40], labels[:40])
    rows = np.tile(X[:40], (REPEATS, 1))
    p, rng = model.predict_proba(rows), np.random.default_rng(1)
    drawn = model.classes_[(np.cumsum(p, axis=1)[:, :-1] < rng.random((len(p), 1))).sum(axis=1)]
    assert are_normal(model.quantile_residuals(rows, drawn))
    assert not are_normal(model.quantile_residuals(rows, np.full(len(rows), model.classes_[0])))
    with pytest.raises(ValueError, match="y must have one of the labels"):
        model.quantile_residuals(rows, np.full(len(rows), "z"))


RATE = np.exp(0.5 + 0.4 * X[:, 0])
FORMULAS = {
    "gaussian": ("y ~ x", SCORE),
    "bernoulli": ("y ~ x", (SCORE > 0).astype(float)),
    "binomial": ("y | trials(n) ~ x", RNG.binomial(7, 1.0 / (1.0 + np.exp(-X[:, 0]))).astype(float)),
    "poisson": ("y ~ x", RNG.poisson(RATE).astype(float)),
    "gamma": ("y ~ x", RATE * RNG.gamma(3.0, 1.0 / 3.0, N)),
    "ordinal": ("y ~ x", np.digitize(SCORE, [-0.7, 0.9])),
}


@pytest.mark.parametrize("family", FORMULAS)
def test_formulas(family):
    formula, y = FORMULAS[family]
    frame = pandas.DataFrame({"x": X[:, 0], "n": 7.0, "y": y})
    model = AdditiveModel(formula, family, engine="laplace", hyperparameters="maximise").fit(frame)
    drawn = model.sample_predictive(frame, REPEATS, random_state=1)
    residuals = [model.quantile_residuals(frame.assign(y=one), random_state=k) for k, one in enumerate(drawn)]
    # rows of one draw share their coefficients
    assert are_normal(np.concatenate(residuals))
    assert not are_normal(model.quantile_residuals(frame.assign(y=np.full(N, drawn.max()))))


def test_formulas_of_censored_times():
    rng = np.random.default_rng(3)
    x = rng.standard_normal(400)
    time, end = np.exp(1.0 + 0.5 * x) * rng.weibull(1.5, 400), rng.exponential(4.0, 400)
    frame = pandas.DataFrame({"x": x, "y": np.minimum(time, end), "seen": (time <= end).astype(float)})
    model = AdditiveModel("y | event(seen) ~ x", "weibull", engine="laplace", hyperparameters="maximise").fit(frame)
    assert are_normal(model.quantile_residuals(frame))
    # as if every time had been an event
    assert not are_normal(model.quantile_residuals(frame.assign(seen=1.0)))
