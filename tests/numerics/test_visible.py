"""What numbers would hide is refused by name, in every estimator and in models."""

import datetime
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, linear, potentials
from latlin.factor import BinaryFactorAnalysis, FactorAnalysis, GroupFactorAnalysis, MixedFactorAnalysis, NoisyICA
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor
from latlin.mixture import BayesianGaussianMixture
from latlin.numerics.arrays import check_visible

RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 3))
Y = X.sum(axis=1)
DAYS = np.datetime64("2024-01-01") + np.arange(20)

HIDDEN = {
    "masked": np.ma.array(X, mask=X > 1.5),
    "days": np.repeat(DAYS[:, None], 3, axis=1),
    "spans": np.repeat((DAYS - DAYS[0])[:, None], 3, axis=1),
    "frame of days": pd.DataFrame({"a": X[:, 0], "b": pd.to_datetime(DAYS), "c": X[:, 1]}),
    "frame of spans": pd.DataFrame({"a": X[:, 0], "b": pd.to_timedelta(np.arange(20), unit="D"), "c": X[:, 1]}),
    "complex": X + 1j,
    "complex sparse": sparse.csr_array(X + 1j),
    # NumPy makes floats of these without a word
    "masked rows in a list": list(np.ma.array(X, mask=X > 1.5)),
    "single complex numbers": (X + 1j).astype(object),
    "single days": np.repeat(DAYS[:, None], 3, axis=1).astype(object),
    "single spans": np.array([[span] * 3 for span in DAYS - DAYS[0]], dtype=object),
}
ESTIMATORS = [
    linear.BayesianLinearRegression(),
    linear.BayesianLogisticRegression(),
    GaussianProcessRegressor(),
    GaussianProcessClassifier(),
    BayesianGaussianMixture(2),
    FactorAnalysis(1),
    BinaryFactorAnalysis(2),
    GroupFactorAnalysis(2),
    MixedFactorAnalysis(1),
    NoisyICA(2),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("kind", HIDDEN)
def test_no_estimator_takes_them(estimator, kind):
    with pytest.raises((ValueError, TypeError), match=r"X|column .b. holds dates|[Cc]omplex|[Ss]parse"):
        estimator.fit(HIDDEN[kind], Y > 0)


@pytest.mark.parametrize("kind", ["masked", "days", "spans"])
@pytest.mark.parametrize("name", ["y", "sample_weight", "offset"])
def test_nor_beside_the_rows(kind, name):
    values = HIDDEN[kind][:, 0]
    given = {"y": Y, name: values}
    with pytest.raises(ValueError, match=rf"{name} (has \d+ masked|must hold numbers)"):
        linear.BayesianLinearRegression().fit(X, **given)
    if name == "y":
        for kind in (linear.BayesianLogisticRegression, linear.BayesianPoissonRegression):
            with pytest.raises(ValueError, match=r"y (has \d+ masked|must hold numbers)"):
                kind().fit(X, values)


@pytest.mark.parametrize(
    "model", [linear.BayesianLinearRegression(), linear.RobustRegression(), linear.SparseRegression()]
)
@pytest.mark.parametrize("missing", [None, np.nan])
def test_responses_that_are_missing_are_named(model, missing):
    values = Y.astype(object)
    values[3] = missing
    for y in (values, values.tolist()):
        with pytest.raises(ValueError, match="Input y contains NaN"):
            model.fit(X, y)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        GaussianProcessRegressor().fit(X, values)


@pytest.mark.parametrize("model", [GroupFactorAnalysis(2), MixedFactorAnalysis(1)])
@pytest.mark.parametrize("value", ["a", 10**400])
def test_entries_of_factor_models_that_are_no_numbers_are_named(model, value):
    rows = X.astype(object)
    rows[1, 1] = value
    with pytest.raises(ValueError, match=r"X must hold numbers, got .* at place 4"):
        model.fit(rows)


@pytest.mark.parametrize("values", [HIDDEN["masked"][:, 0], Y + 1j, DAYS, [np.timedelta64(1, "s")] * 20])
def test_nor_when_what_is_fitted_is_asked(values):
    counts, trials = np.round(np.abs(Y)), np.full(20, 9.0)
    poisson = linear.BayesianPoissonRegression(prior_scale=1.0).fit(X, counts)
    chances = linear.BayesianBinomialRegression(prior_scale=1.0).fit(X, counts, trials=trials)
    times = linear.BayesianSurvivalRegression(prior_scale=1.0).fit(X, np.exp(Y))
    process = GaussianProcessRegressor(optimizer=None).fit(X, Y)
    asked = {
        "exposure": [lambda: poisson.fit(X, counts, exposure=values), lambda: poisson.predict(X, exposure=values)],
        "offset": [lambda: poisson.predict(X, offset=values, exposure=np.ones(20))],
        "trials": [lambda: chances.predict_interval(X, trials=values)],
        "times": [lambda: times.predict_survival(X, values)],
        "y": [
            *(partial(model.score, X, values) for model in (poisson, process)),
            *(partial(model.quantile_residuals, X, values) for model in (poisson, chances, times, process)),
            *(partial(model.log_predictive_density, X, values) for model in (poisson, chances, times, process)),
        ],
        "loc": [lambda: potentials.Gaussian(values)],
        "low": [lambda: potentials.Interval(values, np.inf)],
        "GaussianFactor mean": [lambda: GaussianFactor(values)],
    }
    for name, questions in asked.items():
        for question in questions:
            with pytest.raises(ValueError, match=rf"^{name} (has \d+ masked|must hold (real )?numbers)"):
                question()


def test_polars_columns_are_looked_at():
    polars = pytest.importorskip("polars")
    days = polars.DataFrame({"a": [1.0, 2.0], "b": [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]})
    with pytest.raises(ValueError, match="column 'b' got Date"):
        check_visible("X", days)
    with pytest.raises(ValueError, match="got Date"):
        check_visible("y", days["b"])
    assert check_visible("X", days.select("a")).shape == (2, 1)


class Days:
    """A column as polars shows it."""

    dtype = "Date"


def test_a_column_of_another_library_is_looked_at():
    with pytest.raises(ValueError, match="y must hold numbers, got Date"):
        check_visible("y", Days())


def test_models_take_no_imaginary_part():
    with pytest.raises(ValueError, match="SiteFactor H must hold real numbers"):
        SiteFactor(sparse.csr_array(X + 1j), potentials.Logit(Y > 0))
    operator = LinearOperator(X.shape, matvec=lambda v: (X + 1j) @ v, dtype=complex)
    with pytest.raises(ValueError, match="SiteFactor H must hold real numbers"):
        SiteFactor(operator, potentials.Logit(Y > 0))
    own = potentials.Custom(lambda x: -(x**2) + 1j)
    with pytest.raises(ValueError, match="log_density must be real"):
        infer(LatentLinearModel([GaussianFactor(dim=1), SiteFactor(None, own)]), "map")


def test_a_mask_that_hides_nothing_is_no_matter():
    model = linear.BayesianLinearRegression().fit(np.ma.array(X), np.ma.array(Y))
    np.testing.assert_array_equal(model.coef_, linear.BayesianLinearRegression().fit(X, Y).coef_)


@pytest.mark.parametrize("kind", ["masked", "days", "spans"])
def test_nor_beside_the_response(kind):
    counts, hidden = np.round(np.abs(Y)), np.abs(HIDDEN[kind][:, 0]) if kind == "masked" else HIDDEN[kind][:, 0]
    words = r"(has \d+ masked|must hold numbers)"
    with pytest.raises(ValueError, match=f"trials {words}"):
        linear.BayesianBinomialRegression().fit(X, counts, trials=hidden)
    with pytest.raises(ValueError, match=f"y {words}"):
        linear.BayesianBinomialRegression().fit(X, hidden, trials=np.full(20, 9.0))
    with pytest.raises(ValueError, match=f"event {words}"):
        linear.BayesianSurvivalRegression().fit(X, np.exp(Y), event=hidden)


ROWS = [
    linear.BayesianLinearRegression(),
    linear.BayesianSoftmaxRegression(),
    GaussianProcessRegressor(),
    GaussianProcessClassifier(),
    BayesianGaussianMixture(2),
    FactorAnalysis(1),
    NoisyICA(2),
]


@pytest.mark.parametrize("estimator", ROWS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.full((20, 3), "red"), "X must hold numbers, got 'red' at place 0"),
        (np.full((20, 3), b"red"), "X must hold numbers, got b'red' at place 0"),
        ([[1.0, 2.0, "red"]] * 20, "X must hold numbers, got 'red' at place 2"),
        (np.array([[1.0, 2.0, 10**400]] * 20, dtype=object), "X must hold numbers, got 1000"),
        (None, "X must be a table of numbers with rows and columns, got None"),
        ({1, 2}, "X must be a table of numbers"),
        (3.0, "X must be a table of numbers"),
    ],
    ids=["texts", "bytes", "a text in a list", "too large", "nothing", "a set", "a number"],
)
def test_what_is_no_table_of_numbers_is_named(estimator, rows, words):
    with pytest.raises(ValueError, match=words):
        estimator.fit(rows, np.arange(20) % 2)


def test_a_response_that_is_no_number_is_named():
    date = r"date: make numbers of points and spans of time"
    for y, words in (
        (["red"] * 20, "'red' at place 0"),
        ([datetime.date(2020, 1, 1)] * 20, date),
        (np.array([10**400] * 20, dtype=object), "10+ at place 0"),
    ):
        with pytest.raises(ValueError, match=f"y must hold numbers, got {words}"):
            linear.BayesianLinearRegression().fit(X, y)
