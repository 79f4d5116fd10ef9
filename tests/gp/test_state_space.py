"""Gaussian processes on a line by their state space: those of the dense process, for every engine and likelihood."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from latlin import load
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor
from latlin.gp import state_space as module

SUM = ConstantKernel(1.3) * Matern(0.7, nu=2.5) + ConstantKernel(0.5) * Matern(2.0, nu=0.5)
FITS = [
    ("gaussian", "auto"),
    ("student-t", "laplace"),
    ("student-t", "gkl"),
    ("poisson", "gkl"),
    ("poisson", "ep"),
    ("poisson", "laplace"),
    ("logistic", "lvb"),
]


def rows(count=70):
    """Irregular, unsorted, with ties."""
    rng = np.random.default_rng(0)
    X = 5.0 * rng.random((count, 1))
    X[5], X[9] = X[7], X[7]
    return X, np.sin(5.0 * X[:, 0]) + 0.1 * rng.standard_normal(count), 7.0 * rng.random((30, 1)) - 1.0


def fitted(likelihood, engine, approximation, kernel=SUM, **options):
    X, y, _ = rows()
    y = np.round(np.exp(y)) if likelihood == "poisson" else y
    fixed = {"hyperparameters": "fixed"} | options
    model = GaussianProcessRegressor(kernel, likelihood=likelihood, engine=engine, approximation=approximation, **fixed)
    return model.fit(X, y)


def answers(model, new):
    value, slope = model.log_marginal_likelihood(eval_gradient=True)
    mean, sd = model.predict_latent(new, return_std=True)
    return value, slope, mean, sd, model.predict_latent(new, return_cov=True)[1], model.leave_one_out()


@pytest.mark.parametrize(("likelihood", "engine"), FITS)
def test_the_line_is_the_dense_process(likelihood, engine):
    _, _, new = rows()
    one, other = (fitted(likelihood, engine, kind) for kind in ("exact", "state-space"))
    # Gaussian KL stops by the gradient in the coordinates of its form
    tolerance = 1e-6 if engine == "gkl" else 1e-8
    for a, b in zip(answers(one, new), answers(other, new), strict=True):
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance)
    assert other.evidence_kind_ == one.evidence_kind_
    assert other.jitter_ == 0.0


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_means_and_scales_of_the_targets(nu):
    _, _, new = rows()
    kernel = Matern(0.6, nu=nu)
    one, other = (fitted("gaussian", "auto", kind, kernel, normalise_y=True) for kind in ("exact", "state-space"))
    for a, b in zip(answers(one, new), answers(other, new), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("likelihood", "engine"), FITS)
def test_slopes_are_differences(likelihood, engine):
    model = fitted(likelihood, engine, "state-space")
    slope = model.log_marginal_likelihood(eval_gradient=True)[1]
    for k, unit in enumerate(1e-4 * np.eye(len(slope))):
        ahead, behind = (model.log_marginal_likelihood(model.theta_ + side * unit) for side in (1.0, -1.0))
        assert slope[k] == pytest.approx((ahead - behind) / 2e-4, rel=1e-4, abs=1e-5)


def test_steps_far_shorter_than_the_length_cost_no_digits():
    """The precision of such a chain has entries of 1e17; in covariances nothing is lost."""
    rng = np.random.default_rng(1)
    X = np.linspace(0.0, 0.5, 300)[:, None]
    y = np.sin(6.0 * X[:, 0]) + 0.3 * rng.standard_normal(300)
    kernel = Matern(2.0, nu=2.5)
    options = {"hyperparameters": "fixed", "likelihood_params": {"scale": 0.3}}
    one, other = (
        GaussianProcessRegressor(kernel, approximation=kind, **options).fit(X, y) for kind in ("exact", "state-space")
    )
    assert other.log_evidence_ == pytest.approx(one.log_evidence_, abs=1e-6)
    new = rng.random((20, 1))
    np.testing.assert_allclose(other.predict(new), one.predict(new), atol=1e-7)
    np.testing.assert_allclose(other.predict(new, return_std=True)[1], one.predict(new, return_std=True)[1], atol=1e-6)


def test_learning_begins_with_a_run_of_rows(monkeypatch):
    monkeypatch.setattr(module, "RUN", 60)
    X = np.linspace(0.0, 30.0, 400)[:, None]
    y = np.random.default_rng(2).poisson(np.exp(np.sin(X[:, 0]))).astype(float)
    kernel = ConstantKernel(1.0) * Matern(3.0, nu=1.5)
    options = {"likelihood": "poisson", "engine": "laplace", "hyperparameters": "maximise"}
    one, other = (
        GaussianProcessRegressor(kernel, approximation=kind, **options).fit(X, y) for kind in ("exact", "state-space")
    )
    assert len(other.leave_one_out()) == 400
    assert other.converged_
    assert other.log_evidence_ == pytest.approx(one.log_evidence_, abs=1e-3)
    np.testing.assert_allclose(other.theta_, one.theta_, atol=0.05)


def test_labels_draws_and_files(tmp_path):
    X, y, new = rows()
    model = GaussianProcessClassifier(Matern(nu=1.5), approximation="state-space").fit(X, y > 0.0)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_allclose(again.predict_proba(new), model.predict_proba(new), rtol=1e-9)
    np.testing.assert_allclose(again.leave_one_out(), model.leave_one_out(), rtol=1e-9)
    noisy = fitted("gaussian", "auto", "state-space")
    draws = noisy.sample_y(new, 4000, random_state=1)
    np.testing.assert_allclose(draws.mean(axis=1), noisy.predict(new), atol=0.12)


def test_a_posterior_can_be_diagnosed():
    assert fitted("poisson", "gkl", "state-space", Matern(1.0, nu=1.5)).posterior_.diagnose(2000, 0).k_hat < 0.7


def test_many_rows_on_a_line_are_chosen_by_auto():
    X = np.linspace(0.0, 100.0, 2500)[:, None]
    model = GaussianProcessRegressor(Matern(nu=1.5), hyperparameters="fixed").fit(X, np.sin(X[:, 0]))
    assert model.approximation_.name == "state-space"
    assert "exact state space" in model.message_


@pytest.mark.parametrize(("kernel", "columns", "word"), [(RBF(), 1, "Matern"), (Matern(nu=1.5), 2, "one column")])
def test_what_is_no_line_is_refused(kernel, columns, word):
    X = np.random.default_rng(0).random((20, columns))
    with pytest.raises(ValueError, match=f"'state-space' cannot serve here.*{word}"):
        GaussianProcessRegressor(kernel, approximation="state-space").fit(X, X[:, 0])
