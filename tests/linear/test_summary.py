"""The table of coefficients, and draws for ArviZ."""

import sys
import types

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from latlin import load
from latlin.linear import BayesianLinearRegression, BayesianLogisticRegression, SparseRegression
from linear_data import responses

X, Y = responses()
FRAME = pd.DataFrame(X, columns=["age", "income", "<script>alert(1)</script>", "weight"])


def test_rows_have_interval_and_sign_by_name():
    model = BayesianLinearRegression(hyperparameters="maximise").fit(FRAME, Y["numbers"])
    summary = model.summary(coverage=0.8)
    assert [row["name"] for row in summary.rows] == [*FRAME.columns, "intercept"]
    for row, mean, sd in zip(summary.rows, model.coef_, model.coef_std_, strict=False):
        assert row["mean"] == pytest.approx(mean)
        assert row["sd"] == pytest.approx(sd)
        assert (row["low"], row["high"]) == pytest.approx(norm.interval(0.8, mean, sd))
        assert row["p_positive"] == pytest.approx(norm.sf(0.0, mean, sd), abs=1e-12)
    assert summary.rows[-1]["mean"] == pytest.approx(model.intercept_)
    draws = model.sample_posterior(20_000, random_state=0)
    assert summary.rows[-1]["sd"] == pytest.approx(draws[:, -1].std(), rel=0.03)
    table = summary.to_pandas()
    assert table.loc["income", "sd"] == pytest.approx(model.coef_std_[1])


def test_the_table_reads_well_and_escapes_names():
    summary = BayesianLinearRegression(hyperparameters="maximise").fit(FRAME, Y["numbers"]).summary()
    text = repr(summary)
    assert "log evidence" in text
    assert "(exact)" in text
    assert "P(>0)" in text
    assert "coefficients change y itself (identity link)" in text
    assert len({len(line) for line in text.splitlines()[1:-5]}) == 1
    page = summary._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_classes_are_named_and_points_have_no_spread():
    three = BayesianLogisticRegression(prior_scale=1.0, engine="laplace").fit(X, Y["three"])
    assert [row["name"] for row in three.summary().rows][:6] == [
        "0: x0",
        "0: x1",
        "0: x2",
        "0: x3",
        "0: intercept",
        "1: x0",
    ]
    point = BayesianLogisticRegression(prior_scale=1.0, engine="map").fit(X, Y["labels"]).summary()
    assert all(row["low"] == row["mean"] == row["high"] for row in point.rows)
    assert {row["p_positive"] for row in point.rows} <= {0.0, 1.0}
    with pytest.raises(ValueError, match="coverage must hold"):
        three.summary(coverage=90)


def test_draws_for_arviz_weigh_back_to_the_evidence(monkeypatch):
    stub = types.ModuleType("arviz")
    stub.from_dict = lambda **groups: groups
    monkeypatch.setitem(sys.modules, "arviz", stub)
    model = BayesianLogisticRegression(prior_scale=1.0, engine="gkl").fit(FRAME, Y["labels"])
    data = model.to_arviz(4000, random_state=0)
    assert data["posterior"]["coef"].shape == (1, 4000, 4)
    assert data["posterior"]["intercept"].shape == (1, 4000)
    assert data["log_likelihood"]["y"].shape == (1, 4000, 60)
    assert data["coords"] == {"feature": list(FRAME.columns)}
    # ⟨p/q⟩ under q is Z, and the bound lies a little below it
    ratio = data["sample_stats"]["lp"] - data["sample_stats"]["log_q"]
    estimate = np.logaddexp.reduce(ratio[0]) - np.log(4000)
    assert model.log_evidence_ - 1e-3 < estimate < model.log_evidence_ + 0.1
    # log-likelihoods of the draws average to nearly that of the posterior mean
    sites = model.posterior_.model.sites[0]
    at_mean = sites.potential.log_density(sites.H @ model.posterior_.mean).sum()
    assert abs(data["log_likelihood"]["y"][0].sum(axis=1).mean() - at_mean) < 5.0


def test_arviz_1_takes_all_groups_as_one_dict(monkeypatch):
    stub = types.ModuleType("arviz")
    stub.__version__, stub.from_dict = "1.0.0", lambda groups, **named: (groups, named)
    monkeypatch.setitem(sys.modules, "arviz", stub)
    groups, named = BayesianLinearRegression(prior_scale=1.0).fit(FRAME, Y["numbers"]).to_arviz(5, random_state=0)
    assert set(groups) == {"posterior", "sample_stats", "log_likelihood", "observed_data"}
    assert named["dims"] == {"coef": ["feature"]}


def test_without_arviz_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    model = BayesianLinearRegression().fit(X, Y["numbers"])
    with pytest.raises(ImportError, match=r"latlin\[arviz\]"):
        model.to_arviz(10)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"latlin\[cli\]"):
        model.summary().to_pandas()


def test_probabilities_of_a_sign_are_probabilities():
    """Of a mixture over hyperparameters, whose distribution function sums to one up to rounding."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 1))
    rows = BayesianLinearRegression().fit(x, -5.0 * x[:, 0] + 0.1 * rng.standard_normal(200)).summary().rows
    assert all(0.0 <= row["p_positive"] <= 1.0 for row in rows)


def test_a_loose_bound_of_a_wide_sparse_model_is_told_beside_an_estimate(tmp_path):
    """Expectation propagation is nearer to the truth, which in few dimensions is an integral."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((20, 40))
    y = rows[:, :2] @ [3.0, -2.0] + 0.5 * rng.standard_normal(20)
    model = SparseRegression(prior_scale=0.3, noise_scale=0.5, fit_intercept=False, standardise=False).fit(rows, y)
    estimate = model.estimated_log_evidence()
    assert model.evidence_kind_ == "lower bound"
    assert estimate > model.log_evidence_ + 0.5
    assert f"estimates the log evidence as {estimate:.4f}" in str(model.summary())
    given = {"prior_scale": 0.3, "noise_scale": 0.5, "fit_intercept": False, "standardise": False}
    small = SparseRegression(engine="gkl", **given).fit([[1.0, 0.7]], [1.5])
    w = np.linspace(-6.0, 6.0, 2401)
    prior = np.exp(-np.abs(w) / 0.3) / 0.6
    joint = norm.pdf(1.5, w[:, None] + 0.7 * w, 0.5) * prior[:, None] * prior
    log_z = np.log(np.trapezoid(np.trapezoid(joint, w), w))
    assert small.log_evidence_ < log_z
    assert abs(small.estimated_log_evidence() - log_z) < 0.3 * (log_z - small.log_evidence_)
    tall = SparseRegression(prior_scale=0.3, noise_scale=0.5, fit_intercept=False).fit(rows[:, :3], y)
    assert "estimates the log evidence" not in str(tall.summary())
    model.save(tmp_path / "sparse.latlin")
    assert load(tmp_path / "sparse.latlin").estimated_log_evidence() is None
