"""Softmax regression: its bound and predictions against brute force, and held-out rows against one-against-rest."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.datasets import load_iris, load_wine

from latlin.inference.gaussian_kl.softmax import Classes, fit_softmax
from latlin.linear import BayesianLogisticRegression, BayesianSoftmaxRegression
from latlin.linear.softmax import RULES
from latlin.priors import Flat

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 1))
LABEL = np.array([0, 1, 2, 0, 2, 1, 0, 2])


def brute_force(scale: float, weight: np.ndarray) -> tuple[float, np.ndarray]:
    """log Z and the posterior means of the slopes of three classes, on a grid."""
    side = np.linspace(-7.0 * scale, 7.0 * scale, 81)
    w = np.stack(np.meshgrid(side, side, side, indexing="ij"), axis=-1).reshape(-1, 3)
    log_joint = -0.5 * np.sum((w / scale) ** 2, axis=1) - 3.0 * np.log(scale * np.sqrt(2.0 * np.pi))
    for x, label, count in zip(X[:, 0], LABEL, weight, strict=True):
        log_joint += count * log_softmax(x * w, axis=1)[:, label]
    top = log_joint.max()
    mass = np.exp(log_joint - top)
    return float(top + np.log(mass.sum()) + 3.0 * np.log(side[1] - side[0])), mass @ w / mass.sum()


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.0])
def test_the_evidence_is_a_lower_bound_and_near(scale: float) -> None:
    weight = np.array([1.0, 2.0, 1.0, 0.5, 1.0, 1.0, 3.0, 1.0])
    data = Classes(X, (LABEL[:, None] == np.arange(3)).astype(float), weight[:, None], np.zeros((8, 3)))
    fit = fit_softmax(data, np.zeros(1), np.full(1, scale), RULES)
    exact, means = brute_force(scale, weight)
    assert fit.ascent.converged
    # independent classes do not know that a shift of all of them changes nothing, which costs most under wide priors
    assert exact - 0.7 < fit.ascent.state.bound <= exact
    np.testing.assert_allclose([float(q.mean[0]) for q in fit.densities], means, atol=0.15 * scale)
    assert np.all(np.diff(fit.ascent.trace) > -1e-9)


def test_the_prior_scale_is_that_of_the_best_evidence() -> None:
    rows, label = load_iris(return_X_y=True)
    learnt = BayesianSoftmaxRegression(priors=Flat()).fit(rows, label)
    assert isinstance(learnt.log_evidence_, float)
    flat = [
        BayesianSoftmaxRegression(prior_scale=factor * learnt.prior_scale_).fit(rows, label).log_evidence_
        for factor in (0.7, 1.0, 1.4)
    ]
    assert flat[1] == pytest.approx(learnt.log_evidence_, abs=1e-3)
    assert flat[1] > max(flat[0], flat[2])


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_held_out_rows_are_predicted_as_well_as_one_against_rest(load) -> None:
    rows, label = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(label))
    train, test = order[::2], order[1::2]
    joint, apart = (
        np.mean(kind(prior_scale=1.0).fit(rows[train], label[train]).log_predictive_density(rows[test], label[test]))
        for kind in (BayesianSoftmaxRegression, BayesianLogisticRegression)
    )
    assert joint > apart - 0.01


def test_two_classes_draws_and_refusals() -> None:
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((60, 2))
    label = np.where(rows[:, 0] + 0.3 * rng.standard_normal(60) > 0.0, "up", "down")
    model = BayesianSoftmaxRegression(prior_scale=1.0, random_state=0).fit(rows, label)
    share = model.predict_proba(rows)
    np.testing.assert_allclose(share.sum(axis=1), 1.0, rtol=1e-12)
    drawn = np.mean(model.sample_y(rows, 4_000) == "up", axis=1)
    np.testing.assert_allclose(drawn, share[:, 1], atol=0.05)
    with pytest.raises(ValueError, match="integrate"):
        BayesianSoftmaxRegression(hyperparameters="integrate").fit(rows, label)
    assert model.posterior_[0].diagnose(n=200, random_state=0).verdict != "accurate"
