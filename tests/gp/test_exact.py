"""Gaussian noise: every engine is exact regression, and equals scikit-learn's."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor as Reference
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from gp_problems import KERNEL, inputs, targets
from latlin import potentials
from latlin.engines import Exact
from latlin.gp import GaussianProcessRegressor
from latlin.priors import Flat

ENGINES = ["auto", "laplace", "lvb", "ep", "gkl"]


def direct(K, y, noise):
    """Evidence of exact regression and its gradient in K, by the textbook."""
    C = K + noise * np.eye(len(y))
    alpha = np.linalg.solve(C, y)
    value = -0.5 * (y @ alpha + np.linalg.slogdet(2.0 * np.pi * C)[1])
    return value, 0.5 * (np.outer(alpha, alpha) - np.linalg.inv(C))


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_is_exact(engine):
    X = inputs()
    y, new = targets("gaussian", X), inputs(9, seed=5)
    gp = GaussianProcessRegressor(KERNEL, engine=engine, likelihood_params={"scale": 0.2}, optimizer=None).fit(X, y)
    K, dK = KERNEL(X, eval_gradient=True)
    value, slope = direct(K, y, 0.04)
    found, gradient = gp.log_marginal_likelihood(eval_gradient=True)
    assert gp.evidence_kind_ == "exact"
    np.testing.assert_allclose([found, gp.log_evidence_], value, atol=1e-8)
    np.testing.assert_allclose(gradient[:3], np.einsum("ij,ijp->p", slope, dK), atol=1e-8)
    # ∂/∂ log scale: the noise variance moves by 2σ² a unit
    np.testing.assert_allclose(gradient[3], 2.0 * 0.04 * np.trace(slope), atol=1e-8)
    cross = KERNEL(new, X)
    mean, cov = gp.predict(new, return_cov=True)
    A = np.linalg.solve(K + 0.04 * np.eye(len(y)), cross.T).T
    np.testing.assert_allclose(mean, A @ y, atol=1e-8)
    np.testing.assert_allclose(cov, KERNEL(new) - A @ cross.T, atol=1e-8)


def test_equals_scikit_learn():
    X = inputs()
    y, new = targets("gaussian", X), inputs(9, seed=5)
    reference = Reference(KERNEL, alpha=0.04, optimizer=None).fit(X, y)
    gp = GaussianProcessRegressor(KERNEL, likelihood_params={"scale": 0.2}, optimizer=None).fit(X, y)
    assert gp.log_evidence_ == pytest.approx(reference.log_marginal_likelihood(), abs=1e-6)
    for ours, theirs in zip(gp.predict(new, return_std=True), reference.predict(new, return_std=True), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_the_same_optimum_as_scikit_learn():
    X = inputs(40)
    y = targets("gaussian", X)
    reference = Reference(ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1)).fit(X, y)
    plain = {"hyperparameters": "maximise", "priors": Flat()}
    gp = GaussianProcessRegressor(ConstantKernel(1.0) * RBF(1.0), likelihood_params={"scale": 0.3}, **plain).fit(X, y)
    assert gp.converged_
    assert gp.log_evidence_ == pytest.approx(reference.log_marginal_likelihood_value_, abs=1e-4)
    assert float(gp.likelihood_.scale) ** 2 == pytest.approx(reference.kernel_.k2.noise_level, rel=1e-2)


def test_normalised_targets_give_the_evidence_in_their_own_units():
    X = inputs()
    y = 50.0 + 7.0 * targets("gaussian", X)
    unit = (y - y.mean()) / y.std()
    plain = GaussianProcessRegressor(KERNEL, likelihood_params={"scale": 0.2}, optimizer=None).fit(X, unit)
    scaled = GaussianProcessRegressor(
        KERNEL, likelihood_params={"scale": 0.2 * y.std()}, optimizer=None, normalise_y=True
    ).fit(X, y)
    assert scaled.log_evidence_ == pytest.approx(plain.log_evidence_ - len(y) * np.log(y.std()), abs=1e-8)
    mean, std = plain.predict(X[:4], return_std=True)
    np.testing.assert_allclose(scaled.predict(X[:4]), y.mean() + y.std() * mean, atol=1e-8)
    np.testing.assert_allclose(scaled.predict(X[:4], return_std=True)[1], y.std() * std, atol=1e-8)


@pytest.mark.parametrize("engine", ["ep", "gkl"])
def test_leave_one_out_is_exact(engine):
    X = inputs(12)
    y = targets("gaussian", X)
    options = {"engine": engine, "likelihood_params": {"scale": 0.2}, "optimizer": None}
    found = GaussianProcessRegressor(KERNEL, **options).fit(X, y).leave_one_out()
    for n in range(0, 12, 4):
        others = np.arange(12) != n
        gp = GaussianProcessRegressor(KERNEL, **options).fit(X[others], y[others])
        np.testing.assert_allclose(gp.log_predictive_density(X[n : n + 1], y[n : n + 1]), found[n], atol=1e-8)


def test_known_error_bars_are_kept():
    X = inputs()
    y, new = targets("gaussian", X), inputs(5, seed=5)
    scale = np.random.default_rng(0).uniform(0.1, 0.5, len(y))
    reference = Reference(KERNEL, alpha=scale**2, optimizer=None).fit(X, y)
    gp = GaussianProcessRegressor(KERNEL, likelihood=potentials.Gaussian(scale=scale), optimizer=None).fit(X, y)
    assert len(gp.theta_) == KERNEL.n_dims
    assert gp.log_evidence_ == pytest.approx(reference.log_marginal_likelihood(), abs=1e-6)
    for ours, theirs in zip(gp.predict(new, return_std=True), reference.predict(new, return_std=True), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_next_to_no_noise_is_exact_too():
    X = inputs(20)
    y = np.sin(X[:, 0])
    gp = GaussianProcessRegressor(KERNEL, likelihood_params={"scale": 1e-5}, optimizer=None).fit(X, y)
    reference = Reference(KERNEL, alpha=1e-10, optimizer=None).fit(X, y)
    assert gp.converged_
    assert gp.log_evidence_ == pytest.approx(reference.log_marginal_likelihood(), rel=1e-4)
    np.testing.assert_allclose(gp.predict(X), y, atol=1e-5)
    with pytest.raises(ValueError, match="Gaussian noise"):
        GaussianProcessRegressor(KERNEL, likelihood="laplace", engine=Exact(), optimizer=None).fit(X, y)
