"""Columns of mixed tables with a second column beside them: successes with trials, times with events."""

import numpy as np
import pandas
import pytest
from scipy.special import expit, gammaln

import latlin
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.factor import MixedFactorAnalysis
from latlin.factor.mixed.fit import infer_new_rows, make_engine
from latlin.factor.mixed.sites import ColumnSites

NORMAL = potentials.Gaussian(0.0, 1.0)


def table(n=300, precision=None, seed=0):
    """Wins of games and two measured columns of one latent; chances that are beta distributed if asked."""
    rng = np.random.default_rng(seed)
    w, games = rng.standard_normal(n), rng.integers(3, 25, n)
    p = expit(0.4 + 1.2 * w)
    p = p if precision is None else rng.beta(precision * p, precision * (1.0 - p))
    frame = {"games": games, "wins": rng.binomial(games, p), "a": w + 0.5 * rng.standard_normal(n)}
    return pandas.DataFrame({**frame, "b": 0.5 * rng.standard_normal(n) - w}), w


OPTIONS = {"types": {"wins": "binomial"}, "beside": {"wins": "games"}, "penalty": 0.01, "random_state": 0}


@pytest.mark.parametrize("engine", ["gkl", "mean-field", "lvb", "laplace", "ep"])
def test_successes_are_their_trials_one_by_one(engine):
    # a column of k successes among n is n binary columns with its loading, and log (n choose k)
    rng = np.random.default_rng(1)
    n, trials, loading, intercept = 6, 7, np.array([0.8, -0.5]), 0.3
    wins = rng.binomial(trials, 0.6, n).astype(float)
    noise = np.column_stack([rng.standard_normal(n)])
    real = ([0.4, 0.9], 0.1, {"scale": 0.7})
    together = ColumnSites(
        ("binomial", "gaussian"), np.array([loading, real[0]]), np.array([intercept, real[1]]), ({}, real[2]), (2, -1)
    )
    apart = ColumnSites(
        (*["logit"] * trials, "gaussian"),
        np.array([*[loading] * trials, real[0]]),
        np.array([*[intercept] * trials, real[1]]),
        (*[{}] * trials, real[2]),
    )
    ones = (np.arange(trials) < wins[:, None]).astype(float)
    rows = np.column_stack([wins, noise, np.full(n, trials)])
    one, many = (
        infer_new_rows(make_engine(engine, NORMAL), r, s)
        for r, s in ((rows, together), (np.column_stack([ones, noise]), apart))
    )
    tol = {"ep": 0.05}.get(engine, 1e-7)  # one site or many: the same approximation but for expectation propagation
    np.testing.assert_allclose(one[0], many[0], atol=tol)
    np.testing.assert_allclose(one[1], many[1], atol=tol)
    choices = gammaln(trials + 1.0) - gammaln(wins + 1.0) - gammaln(trials - wins + 1.0)
    np.testing.assert_allclose(one[2], many[2] + choices, atol=tol)


@pytest.mark.parametrize("engine", ["gkl", "laplace"])
def test_rows_of_censored_times_are_those_of_the_engines(engine):
    rng = np.random.default_rng(2)
    loading, intercept, values = np.array([[0.7, -0.4], [0.3, 0.8]]), np.array([0.2, -0.1]), {"shape": 1.4}
    times, events = rng.exponential(1.0, (5, 2)), np.array([[1.0, 0.0], [0.0, 0.0], [2.0, 1.0], [1.0, 1.0], [0.0, 2.0]])
    sites = ColumnSites(("weibull", "weibull"), loading, intercept, (values, values), (2, 3))
    found = infer_new_rows(make_engine(engine, NORMAL), np.column_stack([times, events]), sites)
    for i in range(5):
        site = potentials.Weibull(times[i], events[i], shape=1.4)
        prior = GaussianFactor(np.zeros(2), np.eye(2))
        exact = infer(LatentLinearModel([prior, SiteFactor(loading, site, offset=intercept)]), engine)
        np.testing.assert_allclose(found[0][i], exact.mean, atol=1e-5)
        np.testing.assert_allclose(found[2][i], exact.log_evidence, atol=1e-7)


def test_successes_find_the_latent_and_are_filled_among_their_trials(tmp_path):
    X, w = table()
    model = MixedFactorAnalysis(1, **OPTIONS).fit(X)
    assert model.converged_
    assert np.diff(model.trace_).min() > -1e-9 * abs(model.lower_bound_)
    # games are not explained: three columns have loadings
    assert model.components_.shape == (1, 3)
    assert abs(np.corrcoef(model.transform(X)[:, 0], w)[0, 1]) > 0.93
    assert abs(model.components_[0, 0]) == pytest.approx(1.2, abs=0.2)
    assert model.intercepts_[0] == pytest.approx(0.4, abs=0.2)
    holes = X.astype(float)
    holes.loc[::3, "wins"] = np.nan
    holes.loc[0, "games"] = np.nan
    filled, sd = model.impute(holes, return_probabilities=True)
    assert np.isnan(filled.loc[0, ["wins", "games"]].to_numpy()).all()
    gap = np.arange(3, len(X), 3)
    error = (filled["wins"] - X["wins"])[gap] / sd["wins"][gap]
    assert 0.8 < np.sqrt(np.mean(error**2)) < 1.2
    assert np.all((filled["wins"][gap] > 0.0) & (filled["wins"][gap] < X["games"][gap]))
    model.save(tmp_path / "m.latlin")
    loaded = latlin.load(tmp_path / "m.latlin")
    np.testing.assert_array_equal(loaded.score_samples(X), model.score_samples(X))
    draws = loaded.sample(2000, random_state=0, trials={"wins": 10})
    assert "games" not in draws
    assert draws["wins"].max() <= 10.0
    assert draws["wins"].mean() == pytest.approx(10.0 * np.mean(expit(0.4 + 1.2 * w)), abs=0.5)


def test_chances_that_vary_prefer_the_beta_binomial():
    X, _ = table(150, precision=3.0)
    binomial, wide = (
        MixedFactorAnalysis(1, **OPTIONS | {"types": {"wins": family}}).fit(X)
        for family in ("binomial", "beta-binomial")
    )
    assert wide.lower_bound_ > binomial.lower_bound_ + 10.0
    assert wide.sites_.parameters[0]["precision"] == pytest.approx(3.0, rel=0.5)


def test_censored_times_are_not_taken_for_events():
    rng = np.random.default_rng(3)
    w = rng.standard_normal(400)
    time, end = np.exp(1.0 + 0.8 * w) * rng.weibull(1.5, 400), rng.exponential(4.0, 400)
    frame = {
        "weeks": np.minimum(time, end),
        "seen": (time <= end).astype(float),
        "a": w + 0.4 * rng.standard_normal(400),
    }
    X = pandas.DataFrame(frame)
    types, options = {"weeks": "weibull", "seen": "real", "a": "real"}, {"penalty": 0.01, "random_state": 0}
    told = MixedFactorAnalysis(1, types={"weeks": "weibull"}, beside={"weeks": "seen"}, **options).fit(X)
    assert told.intercepts_[0] == pytest.approx(1.0, abs=0.15)
    untold = MixedFactorAnalysis(1, types=types, **options).fit(X[["weeks", "a", "seen"]])
    assert untold.intercepts_[0] < 0.8


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({}, {"beside": None}, "column 'wins' is binomial: name the column of its trials"),
        ({}, {"beside": {"wins": "games", "a": "b"}}, "beside is for columns of binomial"),
        ({}, {"beside": {"wins": "matches"}}, "beside names the column 'matches', which X does not have"),
        ({}, {"types": {"wins": "binomial", "games": "count"}}, "column 'games' belongs to column 'wins'"),
        ({}, {"beside": "games"}, "beside must be a dict"),
        (
            {"wins": 30},
            {},
            "'wins' and 'games': successes must hold numbers of at most trials, got 30 in 2 rows, first in row 4",
        ),
        ({"games": 2.5}, {}, "trials must hold whole numbers 0, 1, 2, …, got 2.5 in 2 rows, first in row 4"),
        (
            {"games": np.nan},
            {},
            "'games' must be known where column 'wins' is, and is missing in 2 rows, first in row 4",
        ),
        ({"wins": -1}, {}, "column 'wins' must hold counts 0, 1, 2, …, got -1.0 in 2 rows, first in row 4"),
    ],
)
def test_bad_trials_get_a_sentence(changes, options, said):
    X, _ = table(40)
    X = X.astype(float)
    X.loc[[4, 7], list(changes)] = list(changes.values())
    with pytest.raises(ValueError, match=said):
        MixedFactorAnalysis(1, **OPTIONS | options).fit(X)


def test_draws_of_successes_need_trials():
    X, _ = table(60)
    model = MixedFactorAnalysis(1, **OPTIONS, max_iter=200).fit(X)
    with pytest.raises(ValueError, match="draws of column 'wins' need trials"):
        model.sample(3)
    with pytest.raises(ValueError, match="trials of column 'wins': trials must hold whole numbers"):
        model.sample(3, trials={"wins": 2.5})
