"""Mean field and affine-independent KL for processes, through whitened values."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import latlin
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor
from latlin.priors import Flat

KERNEL = ConstantKernel(1.5) * RBF(0.8)
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0.0, 5.0, 14))[:, None]
Y = np.sin(2.0 * X[:, 0]) + 0.2 * RNG.standard_t(3, 14)
NEW = np.array([[0.3], [2.6], [7.0]])
SHAPE = {"likelihood": "laplace", "likelihood_params": {"scale": 0.3}, "optimizer": None}


def fitted(engine: str, **options) -> GaussianProcessRegressor:
    return GaussianProcessRegressor(KERNEL, engine=engine, **(SHAPE | options)).fit(X, Y)


def test_bounds_are_ordered_and_means_agree() -> None:
    field, full, affine = (fitted(engine) for engine in ("mean-field", "gkl", "ai-kl"))
    assert field.log_evidence_ < full.log_evidence_ <= affine.log_evidence_ + 1e-8
    assert {m.evidence_kind_ for m in (field, full, affine)} == {"lower bound"}
    spread = full.predict(NEW, return_std=True)[1]
    for other in (field, affine):
        assert np.abs(other.predict(NEW) - full.predict(NEW)).max() < 0.2
        # far from the inputs there is the prior
        assert other.predict(NEW, return_std=True)[1][2] == pytest.approx(spread[2], rel=0.02)
    np.testing.assert_allclose(np.diagonal(affine.predict(NEW, return_cov=True)[1]), affine.predict(NEW, True)[1] ** 2)
    with pytest.raises(ValueError, match="engine 'ai-kl' has none; use 'gkl'"):
        affine.leave_one_out()


def test_gaussian_noise_is_exact_by_affine_kl() -> None:
    options = {"likelihood": "gaussian", "likelihood_params": {"scale": 0.3}}
    exact, affine = fitted("exact", **options), fitted("ai-kl", **options)
    assert affine.log_evidence_ == pytest.approx(exact.log_evidence_, abs=1e-4)
    for ours, theirs in zip(affine.predict(NEW, True), exact.predict(NEW, True), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_the_gradient_of_mean_field_is_that_of_differences() -> None:
    model = fitted("mean-field")
    theta = model.theta_
    slope = model.log_marginal_likelihood(theta, eval_gradient=True)[1]
    differences = [
        (model.log_marginal_likelihood(theta + h) - model.log_marginal_likelihood(theta - h)) / 2e-4
        for h in 1e-4 * np.eye(len(theta))
    ]
    np.testing.assert_allclose(slope, differences, atol=2e-4)


def test_kernels_are_learnt(tmp_path) -> None:
    labels = Y > 0.0
    field = GaussianProcessClassifier(KERNEL, engine="mean-field", hyperparameters="maximise", priors=Flat()).fit(
        X, labels
    )
    start = GaussianProcessClassifier(KERNEL, engine="mean-field", optimizer=None).fit(X, labels)
    assert field.log_evidence_ > start.log_evidence_
    affine = GaussianProcessClassifier(KERNEL, engine="ai-kl").fit(X, labels)
    assert "parameters learnt by Gaussian KL" in affine.posteriors_[0].message
    for model in (field, affine):
        model.save(tmp_path / "model.npz")
        loaded = latlin.load(tmp_path / "model.npz")
        np.testing.assert_allclose(loaded.predict_proba(NEW), model.predict_proba(NEW), atol=1e-9)
    with pytest.raises(ValueError, match="affine bound has no gradient"):
        GaussianProcessClassifier(KERNEL, engine="ai-kl", hyperparameters="integrate").fit(X, labels)
