"""Softmax and multinomial probit regression: bounds, posteriors and predictions against brute force and peers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine

from latlin import infer
from latlin.inference.gaussian_kl.class_rows import Classes
from latlin.inference.gaussian_kl.classes import fit_coefficients, independent_precisions
from latlin.linear import (
    BayesianLogisticRegression,
    BayesianMultinomialProbitRegression,
    BayesianProbitRegression,
    BayesianSoftmaxRegression,
)
from latlin.linear._together import RULES
from latlin.potentials.class_links import CLASS_LINKS
from latlin.priors import Flat, Gamma

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
    found = [np.linalg.inv(chol.factor.T @ chol.factor) for chol in independent_precisions(joint, 3)]
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


KINDS = [BayesianSoftmaxRegression, BayesianMultinomialProbitRegression]


def three_classes(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((n, 2))
    return rows, np.array(list("abc"))[np.argmax(rows @ rng.standard_normal((2, 3)) + rng.gumbel(size=(n, 3)), axis=1)]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_in_blocks_give_the_same_fit(kind) -> None:
    da = pytest.importorskip("dask.array")
    rows, label = three_classes(40)
    rng = np.random.default_rng(1)
    more = rng.integers(0, 3, 40).astype(float), 0.3 * rng.standard_normal((40, 3))
    model = kind(prior_scale=1.0)
    held = clone(model).fit(rows, label, *more)
    parts = [da.from_array(part, chunks=(15, *part.shape[1:])) for part in (rows, label, *more)]
    blocked = clone(model).fit(*parts)
    assert blocked.log_evidence_ == pytest.approx(held.log_evidence_, abs=1e-9)
    np.testing.assert_allclose(blocked.coef_, held.coef_, atol=1e-9)
    np.testing.assert_allclose(blocked.predict_proba(parts[0]).compute(), held.predict_proba(rows), atol=1e-9)
    # the model that stands for the rows has this posterior
    for posterior in blocked.posterior_:
        exact = infer(posterior.model, "exact")
        np.testing.assert_allclose(exact.mean, posterior.mean, atol=1e-9)
        np.testing.assert_allclose(exact.variance, posterior.variance, rtol=1e-9)
    with pytest.raises(ValueError, match="all classes are fitted together"):
        clone(model).fit(*parts, checkpoint="state")


def test_the_prior_scale_is_averaged_over() -> None:
    """Against a sum over many fits with given scales, each weighed by its evidence and the prior."""
    rows, label = three_classes(30)
    prior = Gamma(2.0, 1.0)
    model = BayesianSoftmaxRegression(hyperparameters="integrate", priors=prior, random_state=0).fit(rows, label)
    scales = np.exp(np.linspace(np.log(0.04), np.log(15.0), 24))
    fits = [BayesianSoftmaxRegression(prior_scale=scale).fit(rows, label) for scale in scales]
    logs = np.array([fit.log_evidence_ for fit in fits]) + prior.log_density(scales) + np.log(scales)
    logs += np.log(np.log(scales[1] / scales[0]))
    share = np.exp(logs - np.logaddexp.reduce(logs))
    assert model.log_evidence_ == pytest.approx(np.logaddexp.reduce(logs), abs=0.03)
    assert model.evidence_kind_ == "lower bound"
    assert model.prior_scale_ == pytest.approx(share @ scales, rel=0.03)
    chances = np.einsum("f,fnk->nk", share, [fit.predict_proba(rows) for fit in fits])
    np.testing.assert_allclose(model.predict_proba(rows), chances, atol=0.005)
    np.testing.assert_allclose(model.coef_, np.einsum("f,fkd->kd", share, [fit.coef_ for fit in fits]), atol=0.02)
    drawn = model.sample_y(rows, 4000)
    np.testing.assert_allclose([np.mean(drawn == k, axis=1) for k in "abc"], chances.T, atol=0.04)
    low, high = np.moveaxis(model.predict_interval(rows), -1, 0)
    assert np.all((low < chances) & (chances < high))
    # the differences between classes have one prior scale
    assert model.posterior_[0].density.weights.tolist() == model.posterior_[2].density.weights.tolist()


@pytest.mark.parametrize("model", [BayesianSoftmaxRegression(), BayesianMultinomialProbitRegression()])
def test_what_stands_for_the_likelihood_is_not_judged(model):
    """Scales learnt, some labels far from where they should be: no word on residuals, no verdict by draws."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 2))
    y = np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.5, 0.5])
    y[:5] = 2 - y[:5]
    model.fit(X, y)
    assert all(check.passed for check in model.checks_.checks)
    found = model.posterior_[0].diagnose(400, random_state=0)
    assert (found.verdict, found.reason[:32]) == ("rough", "this is one class of a joint fit")
