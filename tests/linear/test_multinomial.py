"""Softmax and multinomial probit regression: bounds, posteriors and predictions against brute force and peers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine

from latlin.inference.gaussian_kl.classes import Classes, fit_coefficients, up_to_a_shift
from latlin.linear import (
    BayesianLogisticRegression,
    BayesianMultinomialProbitRegression,
    BayesianProbitRegression,
    BayesianSoftmaxRegression,
)
from latlin.linear.multinomial import RULES
from latlin.potentials.class_links import CLASS_LINKS
from latlin.priors import Flat

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 1))
LABEL = np.array([0, 1, 2, 0, 2, 1, 0, 2])
PAIRS = ((BayesianSoftmaxRegression, BayesianLogisticRegression),)
PAIRS += ((BayesianMultinomialProbitRegression, BayesianProbitRegression),)


def brute_force(link: str, scale: float, weight: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """log Z, and the posterior means and covariance of the slopes of three classes, on a grid."""
    side = np.linspace(-5.5 * scale, 5.5 * scale, 37 if link == "logit" else 21)
    w = np.stack(np.meshgrid(side, side, side, indexing="ij"), axis=-1).reshape(-1, 3)
    log_joint = -0.5 * np.sum((w / scale) ** 2, axis=1) - 3.0 * np.log(scale * np.sqrt(2.0 * np.pi))
    for x, label, count in zip(X[:, 0], LABEL, weight, strict=True):
        log_joint += count * CLASS_LINKS[link].log_probabilities(x * w, np.zeros_like(w))[:, label]
    top = log_joint.max()
    mass = np.exp(log_joint - top)
    mean = mass @ w / mass.sum()
    covariance = (w - mean).T @ ((w - mean) * mass[:, None]) / mass.sum()
    return float(top + np.log(mass.sum()) + 3.0 * np.log(side[1] - side[0])), mean, covariance


@pytest.mark.parametrize(("link", "scale"), [("logit", 0.3), ("logit", 1.0), ("logit", 2.0), ("probit", 1.0)])
def test_the_evidence_is_a_lower_bound_and_the_posterior_is_near(link: str, scale: float) -> None:
    weight = np.array([1.0, 2.0, 1.0, 0.5, 1.0, 1.0, 3.0, 1.0])
    data = Classes(X, (LABEL[:, None] == np.arange(3)).astype(float), weight[:, None], np.zeros((8, 3)))
    fit = fit_coefficients(CLASS_LINKS[link], data, np.zeros(1), np.full(1, scale), RULES)
    exact, means, covariance = brute_force(link, scale, weight)
    assert fit.ascent.converged
    assert exact - 0.3 < fit.ascent.state.bound <= exact + 1e-6
    np.testing.assert_allclose([float(q.mean[0]) for q in fit.densities], means, atol=0.05 * scale)
    # differences between classes vary as they should; a shift of all of them is not told
    variance = [float(q.variance[0]) for q in fit.densities]
    for j, k in ((0, 1), (0, 2), (1, 2)):
        wanted = covariance[j, j] + covariance[k, k] - 2.0 * covariance[j, k]
        assert variance[j] + variance[k] == pytest.approx(wanted, rel=0.25)
    assert np.all(np.diff(fit.ascent.trace) > -1e-9)


def test_differences_between_three_classes_keep_their_covariance() -> None:
    root = np.random.default_rng(1).standard_normal((2, 40))
    one = [root @ root.T / 40.0 * size for size in (1.0, 2.0, 3.0)]
    shift = 0.7 * np.eye(2)
    joint = np.block([[one[j] * (j == k) + shift for k in range(3)] for j in range(3)])
    found = [np.linalg.inv(chol.factor.T @ chol.factor) for chol in up_to_a_shift(joint, 3)]
    np.testing.assert_allclose(found, one, rtol=1e-9)


def test_the_prior_scale_is_that_of_the_best_evidence() -> None:
    rows, label = load_wine(return_X_y=True)
    learnt = BayesianSoftmaxRegression(priors=Flat()).fit(rows, label)
    assert isinstance(learnt.log_evidence_, float)
    flat = [
        BayesianSoftmaxRegression(prior_scale=factor * learnt.prior_scale_).fit(rows, label).log_evidence_
        for factor in (0.7, 1.0, 1.4)
    ]
    assert flat[1] == pytest.approx(learnt.log_evidence_, abs=1e-3)
    assert flat[1] > max(flat[0], flat[2])


@pytest.mark.parametrize(("together", "apart"), PAIRS)
@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_held_out_rows_are_predicted_as_well_as_one_against_rest(load, together, apart) -> None:
    rows, label = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(label))
    train, test = order[::2], order[1::2]
    scores = [
        np.mean(kind(prior_scale=1.5).fit(rows[train], label[train]).log_predictive_density(rows[test], label[test]))
        for kind in (together, apart)
    ]
    assert scores[0] > scores[1]


@pytest.mark.parametrize(("together", "apart"), PAIRS)
def test_two_classes_are_those_of_the_binary_model(together, apart) -> None:
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((40, 2))
    label = (rows[:, 0] + 0.7 * rng.standard_normal(40) > 0.0).astype(int)
    # w_1 − w_0 has √2 times the scale; of probits, so has the noise
    factor = np.sqrt(2.0) if apart is BayesianLogisticRegression else 1.0
    joint = together(prior_scale=1.0).fit(rows, label)
    binary = apart(prior_scale=factor, intercept_scale=10.0 * factor).fit(rows, label)
    assert joint.log_evidence_ < binary.log_evidence_
    assert joint.log_evidence_ > binary.log_evidence_ - 0.5
    np.testing.assert_allclose(joint.predict_proba(rows), binary.predict_proba(rows), atol=0.02)


@pytest.mark.parametrize("kind", [BayesianSoftmaxRegression, BayesianMultinomialProbitRegression])
def test_two_classes_draws_and_refusals(kind) -> None:
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((60, 2))
    label = np.where(rows[:, 0] + 0.3 * rng.standard_normal(60) > 0.0, "up", "down")
    model = kind(prior_scale=1.0, random_state=0).fit(rows, label)
    share = model.predict_proba(rows)
    np.testing.assert_allclose(share.sum(axis=1), 1.0, rtol=1e-12)
    drawn = np.mean(model.sample_y(rows, 4_000) == "up", axis=1)
    np.testing.assert_allclose(drawn, share[:, 1], atol=0.05)
    with pytest.raises(ValueError, match="integrate"):
        kind(hyperparameters="integrate").fit(rows, label)
    interval = model.predict_interval(rows[:3])
    assert np.all((interval[..., 0] < share[:3]) & (share[:3] < interval[..., 1]))
    with pytest.raises(ValueError, match="2 classes with 2501 coefficients each are 5002"):
        kind(prior_scale=1.0).fit(np.tile(rows, (1, 1250)), label)
    assert model.posterior_[0].diagnose(n=200, random_state=0).verdict != "accurate"


def test_wide_priors_on_nearly_separable_classes_converge() -> None:
    rows, label = load_iris(return_X_y=True)
    model = BayesianSoftmaxRegression(prior_scale=9.0).fit(rows, label)
    assert model.converged_
    assert model.n_iter_ < 200


@pytest.mark.parametrize("scale", [30.0, 100.0])
def test_very_wide_priors_on_separable_classes_converge(scale) -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(centre, 0.4, (15, 2)) for centre in ([0, 0], [4, 0], [0, 4])])
    model = BayesianSoftmaxRegression(prior_scale=scale).fit(rows, np.repeat([0, 1, 2], 15))
    assert model.converged_
    # log p(y) ≤ 0, and about half a nat per doubling of a scale that no class forbids
    assert -15.0 < model.log_evidence_ < 0.0


@pytest.mark.parametrize("kind", [BayesianSoftmaxRegression, BayesianMultinomialProbitRegression])
def test_rows_in_blocks_are_refused_in_a_sentence(kind) -> None:
    dask_array = pytest.importorskip("dask.array")
    rows, label = np.random.default_rng(0).standard_normal((30, 2)), np.arange(30) % 3
    with pytest.raises(ValueError, match="X is in blocks of rows, which cannot be fitted with all classes together"):
        kind(prior_scale=1.0).fit(dask_array.from_array(rows, chunks=(10, 2)), dask_array.from_array(label, chunks=10))
