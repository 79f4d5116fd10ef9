"""Curves of the expected target along main features."""

import numpy as np
import pytest

from latlin.linear import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianOrdinalRegression,
    BayesianPoissonRegression,
)
from latlin.report import Facts, gather, render
from latlin.report.effect_curves import COVERAGE, effect_curves

RNG = np.random.default_rng(0)
X = RNG.standard_normal((150, 3)) * [1.0, 10.0, 1.0]
X[:, 2] = X[:, 2] > 0.0
LATENT = 0.3 * X[:, 0] + 0.15 * X[:, 1]


def test_the_largest_effect_comes_first_and_levels_are_left_out():
    model = BayesianLinearRegression().fit(X, LATENT + 0.5 * RNG.standard_normal(150))
    assert [curve["name"] for curve in effect_curves(model, X)] == ["x1", "x0"]


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_curves_are_quantiles_of_draws_at_the_same_places(family):
    if family == "logistic":
        model = BayesianLogisticRegression(prior_scale=1.0).fit(X, RNG.random(150) < 1 / (1 + np.exp(-LATENT)))
    else:
        model = BayesianPoissonRegression(prior_scale=1.0).fit(X, RNG.poisson(np.exp(0.3 * LATENT)))
    curve = effect_curves(model, X)[0]
    place = X.mean(axis=0)
    place[1] = curve["x"][-1]
    draws = model.sample_posterior(40_000, random_state=0)
    eta = draws[:, :3] @ place + draws[:, 3] if draws.shape[1] == 4 else None
    assert eta is not None
    values = 1 / (1 + np.exp(-eta)) if family == "logistic" else np.exp(eta)
    low, middle, high = np.quantile(values, [0.5 - COVERAGE / 2, 0.5, 0.5 + COVERAGE / 2])
    for key, expected in (("low", low), ("mean", middle), ("high", high)):
        assert curve[key][-1] == pytest.approx(expected, rel=0.03)


def test_a_model_without_a_mean_on_one_scale_has_none():
    model = BayesianOrdinalRegression(prior_scale=1.0).fit(X, np.digitize(LATENT, [-1.0, 1.0]))
    assert effect_curves(model, X) == []


def test_the_page_shows_them_and_files_keep_them():
    model = BayesianLinearRegression().fit(X, LATENT + 0.5 * RNG.standard_normal(150))
    facts = gather(model, 150, target="height", curves=effect_curves(model, X))
    page = render(Facts.from_json(facts.to_json()))
    assert "Effects of the main features" in page
    assert "expected height by x1." in page
    assert "Effects of the main features" not in render(gather(model, 150))
