"""Hyperparameters of linear estimators: maximised under priors or integrated, and predictions that are averages."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.datasets import load_diabetes
from sklearn.linear_model import ARDRegression

import latlin
from latlin.densities.density import Mixture
from latlin.linear import (
    BayesianGammaRegression,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianOrdinalRegression,
    BayesianPoissonRegression,
    BayesianProbitRegression,
    RobustRegression,
    SparseRegression,
)
from latlin.priors import Flat, Gamma, HalfCauchy, HalfNormal
from linear_data import responses

X, Y = responses(n=25, d=2)
NEW = X[:6] + 0.3
CASES = {
    "linear": (BayesianLinearRegression, Y["numbers"], 2),
    "logistic": (BayesianLogisticRegression, Y["labels"], 1),
    "poisson": (BayesianPoissonRegression, Y["counts"], 1),
    "ordinal": (BayesianOrdinalRegression, Y["three"], 3),
    "robust": (RobustRegression, Y["outliers"], 2),
    "sparse": (SparseRegression, Y["numbers"], 2),
    "gamma": (BayesianGammaRegression, np.exp(0.3 * Y["numbers"]), 2),
}


@pytest.fixture(scope="module", params=CASES)
def averaged(request):
    cls, y, count = CASES[request.param]
    return request.param, cls().fit(X, y), y, count


def test_small_problems_are_integrated_by_default(averaged, tmp_path):
    _, model, _, count = averaged
    table = model.hyperparameters_
    assert table.manner == "integrated"
    assert len(table) == count
    assert table.at_bound == ()
    assert isinstance(model.posterior_.density, Mixture)
    for row in table.rows:
        assert row["5%"] < row["50%"] < row["95%"]
        assert row["sd"] > 0.0
    assert table.names[0] in repr(model.summary())
    model.save(tmp_path / "model.npz")
    again = latlin.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
    assert repr(again.hyperparameters_) == repr(table)


def test_predictions_are_the_average_of_those_of_the_parts(averaged):
    _, model, y, _ = averaged
    cls, fit = type(model), model._fits[0]
    engine = "auto" if fit.posterior.engine == "exact" else "gkl"
    keep = {"noise_scale": "scale"}
    total = []
    for share in fit.shares:
        given = {argument: share.values[keep.get(argument, argument)] for argument in _arguments(model, share.values)}
        total.append(np.log(share.weight) + cls(**given, engine=engine).fit(X, y).log_predictive_density(NEW, y[:6]))
    np.testing.assert_allclose(model.log_predictive_density(NEW, y[:6]), logsumexp(total, axis=0), atol=2e-4)


def _arguments(model, values):
    shown = {"scale": "noise_scale"}
    return [shown.get(name, name) for name in values if shown.get(name, name) in model.get_params()]


@pytest.mark.parametrize("name", ["linear", "robust", "poisson", "gamma"])
def test_intervals_and_draws_agree(name):
    cls, y, _ = CASES[name]
    model = cls().fit(X, y)
    low, high = model.predict_interval(NEW, 0.8).T
    draws = model.sample_y(NEW, 20_000, random_state=0)
    inside = np.mean((draws >= low[:, None]) & (draws <= high[:, None]), axis=1)
    # one end of an interval of counts is where its probability is nearest: half of the likeliest count off, at most
    step = np.array([np.bincount(row.astype(int)).max() / 20_000 for row in draws]) if name == "poisson" else 0.0
    assert np.all(np.abs(inside - 0.8) < 0.015 + 0.5 * step)
    mean, sd = model.predict(NEW, return_std=True)
    if name in ("linear", "poisson"):
        np.testing.assert_allclose(draws.mean(axis=1), mean, atol=4.0 * sd.max() / np.sqrt(20_000))
        _, cov = model.predict(NEW, return_cov=True)
        np.testing.assert_allclose(np.sqrt(np.diag(cov)), sd)
        np.testing.assert_allclose(np.cov(draws), cov, atol=0.08 * cov.max())


def test_class_draws_have_the_averaged_probabilities():
    model = BayesianOrdinalRegression().fit(X, Y["three"])
    draws = model.sample_y(NEW, 4000, random_state=0)
    np.testing.assert_allclose(np.mean(draws[:, :, None] == np.arange(3), axis=1), model.predict_proba(NEW), atol=0.03)
    np.testing.assert_allclose(model.predict_proba(NEW).sum(axis=1), 1.0)


def test_the_lattice_and_the_design_of_the_default_agree():
    quick = BayesianLinearRegression().fit(X, Y["numbers"])
    fine = BayesianLinearRegression(hyperparameters="integrate").fit(X, Y["numbers"])
    assert len(fine._fits[0].shares) > 2 * len(quick._fits[0].shares)
    assert quick.log_evidence_ == pytest.approx(fine.log_evidence_, abs=0.05)
    np.testing.assert_allclose(quick.coef_std_, fine.coef_std_, rtol=0.02)
    np.testing.assert_allclose(
        quick.predict_interval(NEW), fine.predict_interval(NEW), atol=0.02 * np.std(Y["numbers"])
    )


def test_an_evidence_by_engine_is_that_in_closed_form():
    exact = BayesianLinearRegression(hyperparameters="integrate").fit(X, Y["numbers"])
    engine = BayesianLinearRegression(engine="gkl", hyperparameters="integrate").fit(X, Y["numbers"])
    assert engine.log_evidence_ == pytest.approx(exact.log_evidence_, abs=1e-4)
    np.testing.assert_allclose(engine.coef_std_, exact.coef_std_, rtol=1e-4)


def test_given_priors_are_used_and_shown():
    given = {"prior_scale": HalfNormal(0.01), "noise_scale": HalfCauchy(3.0)}
    model = BayesianLinearRegression(priors=given).fit(X, Y["numbers"])
    assert [row["prior"] for row in model.hyperparameters_.rows] == ["HalfNormal(scale=0.01)", "HalfCauchy(scale=3)"]
    assert model.prior_scale_ < 0.1 < BayesianLinearRegression().fit(X, Y["numbers"]).prior_scale_
    assert "HalfNormal(scale=0.01)" in repr(model.summary())


def test_large_problems_are_maximised_by_default():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((3000, 8))
    model = BayesianLinearRegression().fit(Z, Z[:, 0] + rng.standard_normal(3000))
    assert model.hyperparameters_.manner == "maximised"
    assert model.evidence_kind_ == "exact"


def test_nothing_is_learnt_when_fixed():
    model = BayesianLinearRegression(prior_scale=0.7, noise_scale=0.4, hyperparameters="fixed").fit(X, Y["numbers"])
    assert model.hyperparameters_.manner == "fixed"
    assert model.hyperparameters_["noise_scale"]["mean"] == 0.4
    guessed = BayesianLogisticRegression(hyperparameters="fixed").fit(X, Y["labels"])
    assert guessed.prior_scale_ == 1.0


def test_an_optimum_at_an_end_is_never_reliable():
    """Noise alone under a flat prior: the scale of the coefficients runs to zero."""
    rng = np.random.default_rng(2)
    Z, y = rng.standard_normal((30, 3)), rng.standard_normal(30)
    model = BayesianLinearRegression(hyperparameters="maximise", priors=Flat()).fit(Z, y)
    assert model.hyperparameters_["prior_scale"]["at_bound"] == "lower"
    diagnosis = model.posterior_.diagnose(random_state=0)
    assert diagnosis.verdict == "wrong"
    assert "prior_scale runs to the lower end" in diagnosis.reason
    assert BayesianLinearRegression().fit(Z, y).hyperparameters_.at_bound == ()


def wide(seed):
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((239, 300))
    y = Z[:, :6] @ rng.standard_normal(6) + 0.5 * rng.standard_normal(239)
    return Z[:39], y[:39], Z[39:], y[39:]


def test_relevance_determination_does_not_collapse_with_more_features_than_rows():
    Z, y, new, held_out = wide(0)
    model = BayesianLinearRegression(ard=True).fit(Z, y)
    assert model.hyperparameters_.at_bound == ()
    assert model.noise_scale_ > 0.01 * y.std()
    low, high = model.predict_interval(new, 0.9).T
    assert np.mean((held_out > low) & (held_out < high)) > 0.8
    peer = ARDRegression().fit(Z, y)
    mean, sd = peer.predict(new, return_std=True)
    assert model.log_predictive_density(new, held_out).mean() > norm.logpdf(held_out, mean, sd).mean()
    # without priors it does collapse, and says so
    bare = BayesianLinearRegression(ard=True, hyperparameters="maximise", priors=Flat()).fit(Z, y)
    assert bare.posterior_.caution[0] == "wrong"


def test_intervals_of_few_rows_cover():
    """Nine to sixteen rows of the diabetes data: maximised intervals are too narrow, averaged ones are not."""
    data, response = load_diabetes(return_X_y=True)
    inside = {"maximise": [], "auto": []}
    for seed, (rows, columns) in enumerate([(9, 4), (12, 6), (16, 8), (16, 10)] * 5):
        rng = np.random.default_rng(seed)
        order, chosen = rng.permutation(len(response)), rng.permutation(10)[:columns]
        train, test = order[:rows], order[rows : rows + 200]
        for manner, found in inside.items():
            model = BayesianLinearRegression(hyperparameters=manner).fit(data[train][:, chosen], response[train])
            low, high = model.predict_interval(data[test][:, chosen], 0.9).T
            found.append(np.mean((response[test] > low) & (response[test] < high)))
    assert 0.85 < np.mean(inside["auto"]) < 0.95
    assert np.mean(inside["maximise"]) < np.mean(inside["auto"]) - 0.03


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"hyperparameters": "guess"},
            "hyperparameters must be one of 'auto', 'maximise', 'integrate', 'fixed', got 'g",
        ),
        ({"priors": 3.0}, "priors must map names of hyperparameters to latlin.priors, got 3.0"),
        ({"priors": {"prior_scale": 1.0}}, r"priors\['prior_scale'\] must be one of latlin.priors, got 1.0"),
        (
            {"priors": {"df": Gamma(2.0, 1.0)}},
            "priors names 'df', which is not learnt here; learnt are prior_sc",
        ),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        BayesianLinearRegression(**options).fit(X, Y["numbers"])


def test_offsets_that_leave_no_digit_to_the_evidence_are_named():
    rng = np.random.default_rng(0)
    X, y, offset = rng.standard_normal((30, 2)), rng.random(30) < 0.5, np.zeros(30)
    offset[3] = 2.0**63
    with pytest.raises(ValueError, match=r"the log evidence is -.*look for responses, offsets, weights, a prior_mean"):
        BayesianProbitRegression().fit(X, y, offset=offset)


@pytest.mark.parametrize("cls", [BayesianLinearRegression, BayesianLogisticRegression])
def test_constant_features_say_nothing_of_their_scale(cls):
    """Ones less their mean are zeros, but for rounding, which is no unit to measure coefficients in."""
    rng = np.random.default_rng(2)
    y = rng.standard_normal(24) if cls is BayesianLinearRegression else rng.random(24) < 0.4
    zeros = cls().fit(np.zeros((24, 3)), y)
    for value in (1.0, 0.1, -3e7):
        model = cls().fit(np.full((24, 3), value), y)
        assert model.log_evidence_ == pytest.approx(zeros.log_evidence_, abs=1e-6)
        assert model.prior_scale_ == pytest.approx(zeros.prior_scale_, rel=1e-4)
