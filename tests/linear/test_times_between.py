"""Times known to lie in intervals, pairs whose order is known, and what is said of numbers that come with rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from latlin.diagnostics.calibration import concordance
from latlin.linear import BayesianCountRegression, BayesianPoissonRegression, BayesianSurvivalRegression

RNG = np.random.default_rng(5)
X = RNG.standard_normal((60, 2))
TIME = np.exp(0.5 + X @ [0.6, -0.4]) * RNG.weibull(1.7, 60)
#: visits every half unit: the event came before the first one, or between two
LOW = np.floor(2.0 * TIME) / 2.0
CODE = np.where(LOW == 0.0, 2.0, 3.0)
SEEN = np.where(LOW == 0.0, 0.5, LOW)
FIXED = {"shape": 1.7, "prior_scale": 1.0, "engine": "laplace"}


@pytest.mark.parametrize("nothing", [np.nan, np.inf, 0.0])
def test_ends_are_needed_only_where_intervals_end(nothing: float) -> None:
    """`upper` may hold anything where the event is not between two times, in arrays and in columns of a table."""
    ends = np.where(CODE == 3.0, LOW + 0.5, nothing)
    model = BayesianSurvivalRegression(**FIXED).fit(X, SEEN, event=CODE, upper=ends)
    exact = BayesianSurvivalRegression(**FIXED).fit(X, TIME)
    assert np.all(np.abs(model.coef_ - exact.coef_) < 0.5 * exact.coef_std_)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "time": SEEN, "seen": CODE, "end": ends})
    named = BayesianSurvivalRegression(**FIXED).fit(frame, "time", event="seen", upper="end")
    np.testing.assert_allclose(named.coef_, model.coef_, rtol=1e-10)
    density = model.log_predictive_density(X, SEEN, event=CODE, upper=ends)
    np.testing.assert_allclose(named.log_predictive_density(frame, "time"), density, rtol=1e-8)
    beside = np.column_stack([SEEN, CODE, ends])
    residuals = model.quantile_residuals(X, SEEN, event=CODE, upper=ends, random_state=0)
    np.testing.assert_array_equal(residuals, model.quantile_residuals(X, beside, random_state=0))
    np.testing.assert_allclose(named.quantile_residuals(frame, "time", random_state=0), residuals, rtol=1e-8)
    assert named.score(frame, "time") == pytest.approx(model.score(X, SEEN, event=CODE, upper=ends))


def test_an_interval_without_an_end_is_named() -> None:
    ends = np.where(np.isin(np.arange(60), np.flatnonzero(CODE == 3.0)[[4, 9]]), np.nan, LOW + 0.5)
    first = np.flatnonzero(CODE == 3.0)[4]
    with pytest.raises(ValueError, match=f"^upper must hold finite numbers, got nan in 2 rows, first in row {first}$"):
        BayesianSurvivalRegression(**FIXED).fit(X, SEEN, event=CODE, upper=ends)
    model = BayesianSurvivalRegression(**FIXED).fit(X, TIME)
    with pytest.raises(ValueError, match="upper is the end of intervals, which event marks with 3: give event too"):
        model.score(X, SEEN, upper=ends)


@pytest.mark.parametrize("family", ["zero-inflated-negative-binomial", "hurdle-poisson"])
def test_zeros_alone_tell_no_other_counts(family: str) -> None:
    with pytest.raises(ValueError, match="y holds no count above zero, and families with zeros of their own need some"):
        BayesianCountRegression(family).fit(X, np.zeros(60))


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        ("exposure", np.ones(59), r"exposure must have shape \(60,\), one number per row, got shape \(59,\)"),
        ("exposure", np.r_[1.0, 0.0, 0.0, np.ones(57)], "got 0 in 2 rows, first in row 1$"),
        ("sample_weight", np.r_[1.0, -2.0, -3.0, np.ones(57)], "got -2 in 2 rows, first in row 1$"),
    ],
)
def test_what_comes_with_rows_is_named(argument: str, value: np.ndarray, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        BayesianPoissonRegression().fit(X, np.ones(60), **{argument: value})


def test_pairs_count_where_one_event_was_certainly_before_the_other() -> None:
    """Every pair of intervals (low, high] by hand: known where one ends before the other begins."""
    code = np.array([1.0, 0.0, 2.0, 3.0, 1.0, 0.0, 2.0, 3.0])
    time = np.array([1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 2.0])
    upper = np.array([0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 4.0])
    predicted = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 0.0, 6.0, 7.0])
    low = np.where(code == 2.0, 0.0, time)
    high = np.select([code == 0.0, code == 3.0], [np.inf, upper], time)
    agreed = known = 0
    for i in range(8):
        for j in range(8):
            if high[i] < low[j] or (high[i] == low[j] and code[j] != 1.0):
                known, agreed = known + 1, agreed + int(predicted[j] > predicted[i])
    assert known == 14
    assert concordance(time, code, predicted, upper=upper) == pytest.approx(agreed / known)
