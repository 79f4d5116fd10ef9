"""Leave-one-out from cavities against refits without the row or the group."""

import numpy as np
import pytest

from latlin.additive import AdditiveModel
from latlin.priors import HalfNormal


def table(n=24, seed=0):
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(6), n // 6)
    x = rng.normal(size=n)
    eta = 0.5 + 0.4 * x + rng.normal(0, 0.7, 6)[g]
    return {"x": x, "g": g, "y": eta + rng.normal(0, 0.5, n), "count": rng.poisson(np.exp(eta))}


def without(frame, kept):
    return {name: values[kept] for name, values in frame.items()}


def test_rows_of_a_gaussian_model_at_given_hyperparameters_are_left_out_exactly():
    frame = table()
    options = {"formula": "y ~ x + (1 | g)", "priors": {"sd(g)": 0.6, "sigma": 0.5, "Intercept": 2.0, "x": 2.0}}
    loo = AdditiveModel(**options).fit(frame).loo()
    for row in (0, 7, 20):
        rest = AdditiveModel(**options).fit(without(frame, np.arange(24) != row))
        assert loo.pointwise[row] == pytest.approx(rest.log_predictive_density(without(frame, [row]))[0], abs=1e-8)
    assert np.all((loo.pit > 0) & (loo.pit < 1))
    assert np.all((loo.pareto_k > 0) & (loo.pareto_k < 1))


def test_groups_of_a_gaussian_model_at_given_hyperparameters_are_left_out_exactly():
    frame = table()
    priors = {"sd(g)": 0.6, "sigma": 0.5, "Intercept": 2.0, "x": 2.0}
    model = AdditiveModel("y ~ x + (1 | g)", priors=priors).fit(frame)
    whole = model.log_evidence_
    loo = model.loo("g")
    for k in (0, 3):
        rest = AdditiveModel("y ~ x + (1 | g)", priors=priors).fit(without(frame, frame["g"] != k))
        # p(group | others) = p(all)/p(others)
        assert loo.pointwise[k] == pytest.approx(whole - rest.log_evidence_, abs=1e-6)


@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
def test_groups_of_one_to_thirty_rows_are_close_to_refits(family):
    rng = np.random.default_rng(1)
    g = np.repeat(np.arange(6), [1, 2, 5, 12, 20, 30])
    x = rng.normal(size=len(g))
    eta = 0.3 + 0.6 * x + rng.normal(0, 0.8, 6)[g]
    y = rng.poisson(np.exp(eta)) if family == "poisson" else rng.binomial(1, 1.0 / (1.0 + np.exp(-eta)))
    frame = {"x": x, "g": g, "y": y}
    priors = {"sd(g)": 0.8, "Intercept": 2.0, "x": 2.0}
    model = AdditiveModel("y ~ x + (1 | g)", family, priors=priors).fit(frame)
    refits = []
    for k in range(6):
        rest = AdditiveModel("y ~ x + (1 | g)", family, priors=priors).fit(without(frame, g != k))
        refits.append(model.log_evidence_ - rest.log_evidence_)
    np.testing.assert_allclose(model.loo("g").pointwise, refits, atol=0.03)


@pytest.mark.parametrize("engine", ["ep", "gkl"])
def test_counts_with_integrated_scales_are_close_to_refits(engine):
    frame = table()
    options = {
        "formula": "count ~ x + (1 | g)",
        "family": "poisson",
        "engine": engine,
        "priors": {"sd(g)": HalfNormal(1.0), "Intercept": 2.0, "x": 2.0},
        "hyperparameters": "integrate",
    }
    loo = AdditiveModel(**options).fit(frame).loo()
    refits = []
    for row in (2, 11, 19):
        rest = AdditiveModel(**options).fit(without(frame, np.arange(24) != row))
        refits.append(rest.log_predictive_density(without(frame, [row]))[0])
    np.testing.assert_allclose(loo.pointwise[[2, 11, 19]], refits, atol=0.03)


@pytest.mark.parametrize("group", [None, "g", "h"])
def test_equal_rows_are_fitted_once_and_left_out_one_by_one(group, monkeypatch):
    rng = np.random.default_rng(5)
    frame = {"g": np.repeat(np.arange(5), 12), "h": np.tile(np.arange(3), 20), "y": rng.integers(0, 2, 60)}
    options = {"formula": "y ~ (1 | g)", "family": "bernoulli", "priors": {"sd(g)": 0.8, "Intercept": 1.0}}
    short = AdditiveModel(**options).fit(frame)
    assert len(short._problem_.observed.y) == 10
    monkeypatch.setattr("latlin.additive.model.merge_copies", lambda problem: problem)
    long = AdditiveModel(**options).fit(frame)
    assert short.log_evidence_ == pytest.approx(long.log_evidence_, abs=1e-3)
    assert short.effects()["Intercept"]["mean"] == pytest.approx(long.effects()["Intercept"]["mean"], abs=1e-3)
    np.testing.assert_allclose(short.loo(group).pointwise, long.loo(group).pointwise, atol=2e-3)


def test_models_are_compared_in_pairs():
    frame = table(48, seed=3)
    priors = {"sd(g)": 0.6, "sigma": 0.5}
    with_x = AdditiveModel("y ~ x + (1 | g)", priors=priors).fit(frame).loo()
    without_x = AdditiveModel("y ~ (1 | g)", priors=priors).fit(frame).loo()
    difference, error = with_x.compare(without_x)
    assert difference == pytest.approx(with_x.elpd - without_x.elpd)
    assert difference > 2 * error > 0
    with pytest.raises(ValueError, match="same rows"):
        with_x.compare(AdditiveModel("y ~ (1 | g)", priors=priors).fit(table()).loo())
    assert "48 rows" in repr(with_x)


def test_levels_of_censored_times_are_the_middle_of_where_they_may_be():
    frame = table()
    frame["t"], frame["seen"] = np.exp(frame["y"]), np.resize([1, 0, 2, 1], 24)
    model = AdditiveModel("t | event(seen) ~ x", "exponential", engine="gkl", priors={"x": 1.0, "Intercept": 2.0})
    loo = model.fit(frame).loo()
    # of a time that comes later, log p = log(1 − level); of one that came earlier, log level
    chance = np.exp(loo.pointwise)
    np.testing.assert_allclose(loo.pit[1::4], 1.0 - 0.5 * chance[1::4], rtol=1e-7)
    np.testing.assert_allclose(loo.pit[2::4], 0.5 * chance[2::4], rtol=1e-7)
