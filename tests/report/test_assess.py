"""Held-out rows: scores by hand, coverage and reliability of a true model, odd splits."""

import numpy as np
import pytest
from scipy.stats import norm, poisson
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_predict

from latlin.linear import (
    BayesianBinomialRegression,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianPoissonRegression,
    BayesianSurvivalRegression,
)
from latlin.report import Assessment, assess
from latlin.report.assess import held_out_score
from latlin.report.words import calibration_verdict, gain_words


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((200, 3))
    return X, X @ [1.0, -2.0, 0.0] + 0.7 * rng.standard_normal(200)


def test_numbers_by_hand(numbers):
    X, y = numbers
    model = BayesianLinearRegression(prior_scale=1.0, noise_scale=0.7)
    seen = assess(model, X, y, folds=4, random_state=3)
    split = KFold(4, shuffle=True, random_state=3)
    density, baseline = np.empty(200), np.empty(200)
    for train, test in split.split(X):
        mean, sd = clone(model).fit(X[train], y[train]).predict(X[test], return_std=True)
        density[test] = norm.logpdf(y[test], mean, sd)
        baseline[test] = norm.logpdf(y[test], y[train].mean(), y[train].std())
    assert seen.log_density == pytest.approx(density.mean(), abs=1e-8)
    assert seen.log_density_error == pytest.approx(density.std(ddof=1) / np.sqrt(200), abs=1e-8)
    assert seen.baseline == pytest.approx(baseline.mean())
    assert seen.gain_error == pytest.approx((density - baseline).std(ddof=1) / np.sqrt(200), abs=1e-8)
    assert gain_words(seen).startswith("The features predict better than a model that ignores them: +")
    nothing = assess(model, X, np.random.default_rng(5).standard_normal(200), folds=2)
    assert gain_words(nothing).startswith("No clear gain")
    score = held_out_score(model, X, y, folds=4, random_state=3)
    assert score == (seen.log_density, seen.log_density_error)
    predicted = cross_val_predict(model, X, y, cv=split)
    assert seen.scores["root mean square error"] == pytest.approx(np.sqrt(np.mean((y - predicted) ** 2)))
    np.testing.assert_allclose(sorted(seen.points), sorted(np.column_stack([predicted, y]).tolist()))


def test_intervals_of_a_true_model_cover(numbers):
    seen = assess(BayesianLinearRegression(), *numbers)
    assert seen.curve_kind == "coverage"
    for group in seen.curve:
        # three standard errors of 200 rows
        assert abs(group["observed"] - group["predicted"]) < 3 * np.sqrt(
            group["predicted"] * (1 - group["predicted"]) / 200
        )
        assert group["low"] <= group["observed"] <= group["high"]
        assert group["size"] == 200


def test_labels(numbers):
    X, y = numbers
    labels = np.where(y > 0, "yes", "no")
    model = BayesianLogisticRegression(prior_scale=1.0, engine="laplace")
    seen = assess(model, X, labels, folds=4)
    assert seen.curve_kind == "probability"
    assert seen.baseline < seen.log_density < 0.0
    assert seen.scores["accuracy"] > 0.85
    assert 0.0 < seen.scores["Brier score"] < 0.15
    assert sum(group["size"] for group in seen.curve) == 200
    assert Assessment.from_json(seen.to_json()) == seen


def test_several_labels_and_rare_ones(numbers):
    X, y = numbers
    labels = np.digitize(y, [-1.0, 1.0])
    model = BayesianLogisticRegression(prior_scale=1.0, engine="laplace")
    assert assess(model, X, labels, folds=2).curve_kind == "confidence"
    rare = np.r_[0, 0, 0, np.ones(197, int)]
    assert assess(model, X, rare, folds=5).folds == 3
    with pytest.raises(ValueError, match="one row only"):
        assess(model, X, np.r_[0, np.ones(199, int)])
    with pytest.raises(ValueError, match="folds must be between 2 and the number of rows, 200, got 1"):
        assess(model, X, labels, folds=1)


def test_counts_that_vary_too_much_are_said_to():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((150, 2))
    mean = np.exp(0.5 + 0.4 * X[:, 0])
    model = BayesianPoissonRegression(prior_scale=1.0, engine="laplace")
    honest = assess(model, X, rng.poisson(mean), folds=2)
    assert "over-dispersion" not in calibration_verdict(honest, "poisson")
    scattered = assess(model, X, rng.poisson(mean * rng.gamma(0.3, 1 / 0.3, 150)), folds=2)
    assert "over-dispersion" in calibration_verdict(scattered, "poisson")
    assert "they are too narrow" in calibration_verdict(scattered, "linear")


def test_progress_is_told(numbers):
    told = []
    assess(
        BayesianLinearRegression(prior_scale=1.0, noise_scale=0.7), *numbers, folds=3, advance=lambda: told.append(1)
    )
    assert len(told) == 3


def test_exposures_are_part_of_the_baseline():
    rng = np.random.default_rng(8)
    days, X = rng.integers(1, 200, 90), rng.standard_normal((90, 1))
    y = rng.poisson(0.3 * days)
    model = BayesianPoissonRegression(prior_scale=0.1, engine="laplace")
    seen = assess(model, X, y, folds=3, random_state=3, offset=np.log(days))
    expected = np.empty(90)
    for train, test in KFold(3, shuffle=True, random_state=3).split(y):
        expected[test] = poisson.logpmf(y[test], y[train].sum() / days[train].sum() * days[test])
    # the rate is known well, so that its uncertainty matters little
    assert seen.baseline == pytest.approx(expected.mean(), abs=0.03)


def test_what_exposures_and_trials_explain_is_not_counted_for_the_features():
    rng = np.random.default_rng(0)
    X, days = rng.standard_normal((80, 1)), rng.integers(1, 100, 80)
    model = BayesianPoissonRegression(prior_scale=1.0, engine="laplace")
    counts = rng.poisson(2.0 * days)  # the feature tells nothing
    assert 1.0 - np.var(counts - 2.0 * days) / counts.var() > 0.9
    assert -0.5 < assess(model, X, counts, folds=2, offset=np.log(days)).scores["R² beyond a common rate"] < 0.2
    wins = np.column_stack([rng.binomial(days, 0.5), days])
    model = BayesianBinomialRegression(prior_scale=2.0, engine="laplace")
    assert -0.5 < assess(model, X, wins, folds=2).scores["R² beyond a common rate"] < 0.2


def test_successes_are_predicted_among_their_trials():
    rng = np.random.default_rng(0)
    X, trials = rng.standard_normal((80, 1)), rng.integers(5, 30, 80)
    y = np.column_stack([rng.binomial(trials, 1.0 / (1.0 + np.exp(-2.0 * X[:, 0]))), trials])
    seen = assess(BayesianBinomialRegression(prior_scale=2.0, engine="laplace"), X, y, folds=2)
    assert seen.scores["R² beyond a common rate"] > 0.8
    assert seen.scores["root mean square error"] < 3.0
    assert not any(check.is_caution for check in seen.checks)


def test_censored_times_are_scored_by_their_order():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 1))
    time, end = np.exp(X[:, 0]) * rng.weibull(2.0, 80), rng.exponential(2.0, 80)
    y = np.column_stack([np.minimum(time, end), time <= end])
    model = BayesianSurvivalRegression(prior_scale=1.0, engine="laplace")
    seen = assess(model, X, y, folds=2)
    assert list(seen.scores) == ["concordance"]
    assert seen.scores["concordance"] == pytest.approx(model.fit(X, y).score(X, y), abs=0.02)
    # of rows in reverse order: the predictions are wrong, and it shows
    assert assess(model, X, np.column_stack([y[::-1, 0], y[:, 1]]), folds=2).scores["concordance"] < 0.7


def test_noise_of_a_few_far_rows_has_its_remedy():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    found = assess(BayesianLinearRegression(), X, X[:, 0] + rng.standard_t(2, 300))
    (coverage,) = [check for check in found.checks if check.name == "coverage"]
    assert "most rows lie closer to their prediction than the noise says" in coverage.remedy
    assert "RobustRegression" in coverage.remedy
