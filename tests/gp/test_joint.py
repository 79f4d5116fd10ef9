"""Several classes by one softmax or multinomial probit: bound, gradient, predictions, leave-one-out; brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.datasets import load_iris
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import latlin
from latlin.gp import GaussianProcessClassifier
from latlin.potentials.class_links import CLASS_LINKS

KERNEL = ConstantKernel(2.0) * RBF(1.0)
X = np.array([[0.0], [0.7], [2.0]])
RNG = np.random.default_rng(0)
PLANE = RNG.standard_normal((24, 2))
LABEL = np.digitize(PLANE[:, 0] + 0.4 * RNG.standard_normal(24), [-0.4, 0.4])


LINKS = tuple(CLASS_LINKS)


def brute_force(link: str, inputs: np.ndarray, seen: list[int], new: np.ndarray) -> tuple[float, np.ndarray]:
    """log p(seen) and P(class at the new input | seen) of three classes, by draws of their functions."""
    every = np.concatenate([inputs, new])
    count = 300_000 if link == "logit" else 5_000
    f = np.random.default_rng(1).standard_normal((count, 3, len(every))) @ np.linalg.cholesky(KERNEL(every)).T
    flat = np.moveaxis(f, 1, 2).reshape(-1, 3)
    log_p = CLASS_LINKS[link].log_probabilities(flat, np.zeros_like(flat)).reshape(count, len(every), 3)
    log_p = np.moveaxis(log_p, 2, 1)
    log_w = sum(log_p[:, label, n] for n, label in enumerate(seen)) - np.log(len(f))
    total = float(logsumexp(log_w))
    return total, np.exp(log_w - total) @ np.exp(log_p[:, :, -1])


def fixed(inputs: np.ndarray, labels, **options) -> GaussianProcessClassifier:
    options = {"multi_class": "joint", "optimizer": None} | options
    return GaussianProcessClassifier(KERNEL, **options).fit(inputs, labels)


@pytest.mark.parametrize("link", LINKS)
def test_the_evidence_is_a_lower_bound_and_predictions_are_near(link) -> None:
    model = fixed(X, [0, 1, 2], link=link)
    exact, share = brute_force(link, X, [0, 1, 2], np.array([[1.2]]))
    assert (model.evidence_kind_, model.multi_class_) == ("lower bound", "joint")
    # the draws know the evidence to 0.005, or to 0.04
    assert exact - 0.5 < model.log_evidence_ < exact + (0.005 if link == "logit" else 0.04)
    np.testing.assert_allclose(model.predict_proba([[1.2]])[0], share, atol=0.03)
    assert len(model.posteriors_) == 3
    assert model.predict_latent([[1.2]]).shape == (1, 3)


@pytest.mark.parametrize("link", LINKS)
def test_the_gradient_is_that_of_differences(link) -> None:
    model = fixed(PLANE, LABEL, link=link)
    theta = KERNEL.theta
    slope = model.log_marginal_likelihood(theta, eval_gradient=True)[1]
    step = 1e-4 * np.eye(2)
    differences = [
        (model.log_marginal_likelihood(theta + h) - model.log_marginal_likelihood(theta - h)) / 2e-4 for h in step
    ]
    np.testing.assert_allclose(slope, differences, atol=1e-5)


@pytest.mark.parametrize("link", LINKS)
def test_leave_one_out_is_near_refitting(link) -> None:
    found, again = fixed(PLANE, LABEL, link=link).leave_one_out(), []
    for n in range(0, 24, 6):
        others = np.arange(24) != n
        again.append(fixed(PLANE[others], LABEL[others], link=link).predict_log_proba(PLANE[[n]])[0, LABEL[n]])
    assert np.abs(found[::6] - again).max() < {"logit": 0.1, "probit": 0.15}[link]


def test_held_out_rows_are_predicted_as_well_as_one_against_rest(tmp_path) -> None:
    rows, label = load_iris(return_X_y=True)
    train, test = np.arange(0, 150, 3), np.arange(1, 150, 3)
    joint, apart = (
        GaussianProcessClassifier(multi_class=kind, hyperparameters="maximise").fit(rows[train], label[train])
        for kind in ("auto", "one-vs-rest")
    )
    assert joint.multi_class_ == "joint"
    assert isinstance(joint.log_evidence_, float)
    assert len(joint.kernels_) == 1
    scores = [np.mean(m.predict_log_proba(rows[test])[np.arange(50), label[test]]) for m in (joint, apart)]
    assert scores[0] > scores[1] - 0.01
    joint.save(tmp_path / "joint.npz")
    loaded = latlin.load(tmp_path / "joint.npz")
    np.testing.assert_allclose(loaded.predict_proba(rows), joint.predict_proba(rows), atol=1e-9)
    np.testing.assert_allclose(loaded.leave_one_out(), joint.leave_one_out(), atol=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "ep"}, "Gaussian KL"),
        ({"approximation": "vecchia"}, "exact processes only, got approximation 'vecchia'"),
        ({"multi_class": "all"}, "multi_class must be one of 'auto', 'joint', 'one-vs-rest', got 'all'"),
    ],
)
def test_what_is_refused(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        fixed(PLANE, LABEL, **options)
    if "multi_class" not in options:
        apart = fixed(PLANE, LABEL, **options, multi_class="auto")
        assert apart.multi_class_ == "one-vs-rest"
        assert "classes one against the rest" in apart.message_
