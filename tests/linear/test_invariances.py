"""What must not matter: duplicated rows or weights, offsets, units, sparse or dense storage, the order of labels."""

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from latlin.linear import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianOrdinalRegression,
    BayesianPoissonRegression,
    BayesianProbitRegression,
    RobustRegression,
    SparseRegression,
)
from linear_data import responses

X, Y = responses()
FIXED = {"prior_scale": 0.8}
NOISE = {**FIXED, "noise_scale": 0.5}
CUTS = {**FIXED, "cuts": [-0.5, 0.5]}
CASES = {
    "linear": (BayesianLinearRegression(**NOISE), "numbers"),
    "logistic": (BayesianLogisticRegression(**FIXED), "labels"),
    "three": (BayesianLogisticRegression(**FIXED, engine="laplace"), "three"),
    "probit": (BayesianProbitRegression(**FIXED), "labels"),
    "poisson": (BayesianPoissonRegression(**FIXED), "counts"),
    "ordinal": (BayesianOrdinalRegression(**CUTS), "three"),
    "robust": (RobustRegression(**NOISE, engine="gkl"), "outliers"),
    "sparse": (SparseRegression(**NOISE, engine="gkl"), "numbers"),
}


@pytest.fixture(params=CASES)
def case(request):
    model, response = CASES[request.param]
    return clone(model), Y[response]


def evidence(model):
    return np.sum(model.log_evidence_)


def test_a_weight_of_two_is_a_duplicated_row(case):
    model, y = case
    weight = np.arange(len(y)) % 3
    weighted = model.fit(X, y, sample_weight=weight)
    coef, value, sd = weighted.coef_.copy(), evidence(weighted), weighted.coef_std_.copy()
    repeated = model.fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(repeated.coef_, coef, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(repeated.coef_std_, sd, rtol=1e-6)
    assert evidence(repeated) == pytest.approx(value, rel=1e-9)


@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.MisfitWarning")
def test_sparse_rows_give_the_answers_of_dense_ones(case):
    model, y = case
    model.set_params(standardise=False)
    Z = np.where(np.random.default_rng(0).random(X.shape) < 0.5, 0.0, X / X.std(axis=0))
    dense = model.fit(Z, y)
    coef, value, predicted = dense.coef_.copy(), evidence(dense), dense.predict_latent(Z)
    for kind in (sparse.csr_array, sparse.csc_matrix):
        found = model.fit(kind(Z), y)
        np.testing.assert_allclose(found.coef_, coef, rtol=1e-6, atol=1e-8)
        assert evidence(found) == pytest.approx(value, rel=1e-9)
        np.testing.assert_allclose(found.predict_latent(kind(Z)), predicted, rtol=1e-6, atol=1e-8)


def test_standardised_sparse_rows_stay_sparse_and_differ_only_by_where_the_intercept_is_measured():
    Z = np.where(np.random.default_rng(0).random(X.shape) < 0.5, 0.0, X / X.std(axis=0))
    model = BayesianLogisticRegression(prior_scale=1.0)
    dense = model.fit(Z, Y["labels"]).predict_proba(Z)
    found = model.fit(sparse.csr_array(Z), Y["labels"])
    assert sparse.issparse(found.posterior_.model.sites[0].H)
    np.testing.assert_allclose(found.predict_proba(Z), dense, atol=0.01)


def test_units_of_the_features_do_not_matter(case):
    """Celsius or Kelvin, metres or miles: the same predictions and evidence, coefficients in the new units."""
    model, y = case
    here = model.fit(X, y)
    coef, value, latent = here.coef_.copy(), evidence(here), here.predict_latent(X)
    factor = np.array([1.8, 0.01, 1000.0, 1.0])
    there = model.fit(X * factor + 273.15, y)
    np.testing.assert_allclose(there.coef_ * factor, coef, rtol=1e-5, atol=1e-7)
    assert evidence(there) == pytest.approx(value, rel=1e-8)
    np.testing.assert_allclose(there.predict_latent(X * factor + 273.15), latent, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.MisfitWarning")
def test_an_offset_is_a_feature_of_coefficient_one(case):
    model, y = case
    shift = np.linspace(-1.0, 1.0, len(y))
    model.fit(X, y, offset=shift)
    moved = (model.predict_latent(X, shift) - model.predict_latent(X)).reshape(len(y), -1)
    np.testing.assert_allclose(moved, np.tile(shift[:, None], moved.shape[1]))


@pytest.mark.parametrize("name", ["linear", "robust", "sparse"])
def test_an_offset_is_taken_off_the_observations(name):
    model, response = CASES[name]
    shift = np.linspace(-1.0, 1.0, len(X))
    plain = model.fit(X, Y[response])
    coef, value = plain.coef_.copy(), plain.log_evidence_
    moved = model.fit(X, Y[response] + shift, offset=shift)
    np.testing.assert_allclose(moved.coef_, coef, rtol=1e-6, atol=1e-9)
    assert moved.log_evidence_ == pytest.approx(value, rel=1e-9)


def test_an_exposure_scales_the_rate():
    model = BayesianPoissonRegression(prior_scale=0.5)
    plain = model.fit(X, Y["counts"])
    coef = plain.coef_.copy()
    scaled = model.fit(X, Y["counts"], offset=np.full(len(X), np.log(10.0)))
    np.testing.assert_allclose(scaled.coef_, coef, rtol=1e-6)
    np.testing.assert_allclose(
        scaled.predict(X, offset=np.full(len(X), np.log(10.0))), model.fit(X, Y["counts"]).predict(X)
    )


def test_column_names_survive(case):
    model, y = case
    frame = pd.DataFrame(X, columns=["age", "income", "rate", "weight"])
    model.fit(frame, y)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    assert any("income" in row["name"] for row in model.summary().rows)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["income", "age", "rate", "weight"]])


def test_single_precision_in_and_out(case):
    model, y = case
    double = model.fit(X, y).predict_latent(X)
    single = model.fit(X.astype(np.float32), y)
    assert single.coef_.dtype == single.coef_std_.dtype == np.float32
    answer = single.predict_latent(X.astype(np.float32))
    assert answer.dtype == np.float32
    np.testing.assert_allclose(answer, double, rtol=1e-3, atol=1e-3)


def test_a_warm_start_ends_where_a_cold_one_does():
    options = {"engine": "gkl", "hyperparameters": "maximise"}
    cold = BayesianLogisticRegression(**options).fit(X, Y["labels"])
    warm = BayesianLogisticRegression(**options, warm_start=True).fit(X[:40], Y["labels"][:40]).fit(X, Y["labels"])
    assert warm.prior_scale_ == pytest.approx(cold.prior_scale_, rel=1e-4)
    again = warm.fit(X, Y["labels"])
    # where the search began, two steps of it at most, and two fits beside the optimum for the curvature
    assert again._fits[0].n_fits <= min(5, cold._fits[0].n_fits - 1)
    np.testing.assert_allclose(again.coef_, cold.coef_, rtol=1e-4)


def test_classes_fitted_side_by_side_are_those_fitted_in_turn():
    model = BayesianLogisticRegression(prior_scale=1.0, engine="laplace")
    one = model.fit(X, Y["three"]).coef_
    with parallel_config(backend="threading"):
        two = model.set_params(n_jobs=2).fit(X, Y["three"]).coef_
    np.testing.assert_array_equal(one, two)


def test_labels_may_be_anything_and_an_order_may_be_given():
    words = np.array(["low", "mid", "high"])[Y["three"]]
    plain = BayesianOrdinalRegression(**CUTS).fit(X, Y["three"])
    named = BayesianOrdinalRegression(**CUTS, order=["low", "mid", "high"]).fit(X, words)
    np.testing.assert_allclose(named.coef_, plain.coef_)
    assert named.classes_.tolist() == ["low", "mid", "high"]
    np.testing.assert_array_equal(named.predict(X), np.array(["low", "mid", "high"])[plain.predict(X)])
    density = named.log_predictive_density(X, words)
    np.testing.assert_allclose(density, plain.log_predictive_density(X, Y["three"]))
    with pytest.raises(ValueError, match="order must list the labels"):
        BayesianOrdinalRegression(order=["low", "mid"]).fit(X, words)


def test_weights_and_offsets_are_routed_through_a_pipeline():
    shift = np.linspace(-0.5, 0.5, len(X))
    with config_context(enable_metadata_routing=True):
        inner = BayesianPoissonRegression(prior_scale=0.5).set_fit_request(sample_weight=True, offset=True)
        routed = make_pipeline(StandardScaler().set_fit_request(sample_weight=True), inner).fit(
            X, Y["counts"], sample_weight=np.ones(len(X)), offset=shift
        )
    direct = BayesianPoissonRegression(prior_scale=0.5).fit(
        StandardScaler().fit_transform(X), Y["counts"], offset=shift
    )
    np.testing.assert_allclose(routed[-1].coef_, direct.coef_, rtol=1e-6)
