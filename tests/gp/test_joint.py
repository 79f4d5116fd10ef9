"""Several classes by one softmax or multinomial probit: bound, gradient, predictions, leave-one-out; brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.datasets import load_iris
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

import latlin
from latlin.distributed.blocks import LocalBlocks
from latlin.gp import GaussianProcessClassifier, Inducing, Vecchia, inducing
from latlin.potentials.class_links import CLASS_LINKS
from latlin.priors import Flat

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
    found = model.posteriors_[0].diagnose()
    assert (found.verdict, found.n) == ("rough", 0)
    assert "one class of a joint fit" in found.reason


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
        ({"approximation": "vecchia", "engine": "laplace"}, "Gaussian KL"),
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


@pytest.mark.parametrize("link", LINKS)
def test_all_neighbours_give_the_exact_process_of_all_classes(link, tmp_path) -> None:
    """Also where rows repeat, which then share a value."""
    rows, label = np.concatenate([PLANE, PLANE[:3]]), np.concatenate([LABEL, LABEL[:3]])
    exact, near = (
        fixed(rows, label, link=link, approximation=kind, engine=latlin.engines.GaussianKL(tol=1e-8))
        for kind in ("exact", Vecchia(n_neighbours=26))
    )
    assert (near.multi_class_, near.evidence_kind_) == ("joint", "lower bound")
    assert near.log_evidence_ == pytest.approx(exact.log_evidence_, abs=1e-6)
    np.testing.assert_allclose(near.predict_proba(PLANE + 0.1), exact.predict_proba(PLANE + 0.1), atol=1e-5)
    np.testing.assert_allclose(near.leave_one_out(), exact.leave_one_out(), atol=1e-5)
    slopes = [model.log_marginal_likelihood(eval_gradient=True)[1] for model in (near, exact)]
    np.testing.assert_allclose(*slopes, atol=1e-4)
    near.save(tmp_path / "near")
    again = latlin.load(tmp_path / "near")
    np.testing.assert_allclose(again.predict_proba(PLANE), near.predict_proba(PLANE), atol=1e-9)
    assert again.sample_y(PLANE[:2], 3).shape == (2, 3)


def test_few_neighbours_of_all_classes_have_the_slopes_of_differences() -> None:
    kernel = ConstantKernel(2.0) * Matern([1.0, 3.0], nu=1.5)
    options = {"multi_class": "joint", "approximation": Vecchia(n_neighbours=4)}
    engine = latlin.engines.GaussianKL(tol=1e-8)
    model = GaussianProcessClassifier(kernel, optimizer=None, engine=engine, **options).fit(PLANE, LABEL)
    theta, step = kernel.theta, 1e-4 * np.eye(3)
    slope = model.log_marginal_likelihood(theta, eval_gradient=True)[1]
    differences = [
        (model.log_marginal_likelihood(theta + h) - model.log_marginal_likelihood(theta - h)) / 2e-4 for h in step
    ]
    np.testing.assert_allclose(slope, differences, atol=1e-5)
    kernel = ConstantKernel(2.0) * Matern(1.0, nu=1.5)
    learnt = GaussianProcessClassifier(kernel, hyperparameters="maximise", priors=Flat(), **options).fit(PLANE, LABEL)
    assert learnt.log_evidence_ > learnt.log_marginal_likelihood(kernel.theta) + 0.05
    assert "another model" in learnt.message_


def through(points: np.ndarray, **options) -> GaussianProcessClassifier:
    return fixed(PLANE, LABEL, approximation=Inducing(inputs=points), **options)


@pytest.mark.parametrize("link", LINKS)
def test_inducing_points_are_a_bound_below_the_exact_one_and_all_of_them_give_it(link) -> None:
    exact = fixed(PLANE, LABEL, link=link)
    bounds = [through(PLANE[:count], link=link).log_evidence_ for count in (4, 10)]
    assert bounds[0] < bounds[1] < exact.log_evidence_
    every = through(PLANE, link=link)
    assert (every.multi_class_, every.evidence_kind_) == ("joint", "lower bound")
    assert every.log_evidence_ == pytest.approx(exact.log_evidence_, abs=1e-6)
    np.testing.assert_allclose(every.predict_proba(PLANE + 0.1), exact.predict_proba(PLANE + 0.1), atol=1e-5)
    np.testing.assert_allclose(every.leave_one_out(), exact.leave_one_out(), atol=1e-5)
    np.testing.assert_allclose(
        every.log_marginal_likelihood(eval_gradient=True)[1],
        exact.log_marginal_likelihood(eval_gradient=True)[1],
        atol=1e-4,
    )


@pytest.mark.parametrize("link", LINKS)
def test_the_gradient_of_few_points_is_that_of_differences(link, tmp_path) -> None:
    model = through(PLANE[::3], link=link, engine=latlin.engines.GaussianKL(tol=1e-8))
    _, slope = model.log_marginal_likelihood(eval_gradient=True)
    theta, step = model.kernels_[0].theta, 1e-4
    for j in range(len(theta)):
        up, down = (model.log_marginal_likelihood(theta + side * step * np.eye(len(theta))[j]) for side in (1, -1))
        assert slope[j] == pytest.approx((up - down) / (2 * step), abs=1e-4)
    model.save(tmp_path / "model")
    again = latlin.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict_proba(PLANE), model.predict_proba(PLANE), atol=1e-12)
    np.testing.assert_allclose(again.leave_one_out(), model.leave_one_out(), atol=1e-9)


def test_classes_learn_their_kernel_through_inducing_points_on_samples_first(monkeypatch) -> None:
    rng = np.random.default_rng(2)
    rows = rng.uniform(-2, 2, (900, 2))
    label = np.digitize(rows[:, 0] * rows[:, 1] + 0.4 * rng.standard_normal(900), [-0.5, 0.5])
    monkeypatch.setattr(inducing, "LADDER", ((200, 15), (600, 15)))
    options = {"approximation": Inducing(25, learning_rows=400), "hyperparameters": "maximise", "random_state": 0}
    model = GaussianProcessClassifier(KERNEL, **options).fit(rows[:600], label[:600])
    assert model.multi_class_ == "joint"
    assert model.converged_
    held = model.predict_log_proba(rows[600:])[np.arange(300), label[600:]].mean()
    apart = GaussianProcessClassifier(KERNEL, multi_class="one-vs-rest", **options).fit(rows[:600], label[:600])
    assert held > apart.predict_log_proba(rows[600:])[np.arange(300), label[600:]].mean() - 0.02
    told = GaussianProcessClassifier(KERNEL, optimizer=None, random_state=0, approximation=Inducing(5)).fit(
        LocalBlocks.of(rows, label, rows=300)
    )
    assert "several classes together need rows in memory, got blocks" in told.messages_[0]
