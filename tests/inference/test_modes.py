"""MAP and Laplace: the mode by scipy's optimiser, the curvature by finite differences, ordering of the evidence."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import Lasso, LogisticRegression

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer
from latlin.potentials import Gaussian, GaussianMixture, GeneralisedNormal, Laplace, Logit, Poisson, StudentT
from reference import brute_force, log_joint

rng = np.random.default_rng(11)
ROWS = rng.standard_normal((30, 3))
LABELS = (rng.random(30) < 0.5).astype(int)
REALS = ROWS @ [1.0, -1.0, 0.0] + 0.2 * rng.standard_t(2, 30)
MODELS = {
    "logit": Logit(LABELS),
    "poisson": Poisson(rng.poisson(2.0, 30)),
    "student": StudentT(3.0, REALS, 0.5),
}


def build(potential, cov=2.0):
    return LatentLinearModel([GaussianFactor(0.1, cov, dim=3), SiteFactor(ROWS, potential)])


@pytest.mark.parametrize("name", MODELS)
def test_mode_and_curvature(name):
    model = build(MODELS[name])
    mode = minimize(lambda w: -log_joint(model, w[None])[0], np.zeros(3), method="BFGS", options={"gtol": 1e-9}).x
    post = infer(model, "map")
    assert post.evidence_kind == "none"
    assert np.isnan(post.log_evidence)
    assert np.all(np.diff(post.trace) >= -1e-9)
    np.testing.assert_allclose(post.mean, mode, atol=1e-5)
    laplace = infer(model, "laplace")
    np.testing.assert_allclose(laplace.mean, mode, atol=1e-5)
    step = 1e-4 * np.eye(3)
    hessian = [
        [
            (log_joint(model, (mode + a + b)[None]) - log_joint(model, (mode + a - b)[None])
             - log_joint(model, (mode - a + b)[None]) + log_joint(model, (mode - a - b)[None]))[0] / 4e-8
            for a in step
        ]
        for b in step
    ]  # fmt: skip
    np.testing.assert_allclose(np.linalg.inv(laplace.covariance()), -np.array(hessian), rtol=1e-4, atol=1e-4)
    expected = log_joint(model, mode[None])[0] + 0.5 * np.linalg.slogdet(2 * np.pi * laplace.covariance())[1]
    assert laplace.log_evidence == pytest.approx(expected, abs=1e-6)
    assert laplace.evidence_kind == "approximation"
    assert laplace.log_evidence == pytest.approx(brute_force(model, laplace)[0], abs=0.2)


@pytest.mark.parametrize(
    "potential", [GaussianMixture([0.5, 0.5], [-3.0, 3.0], [1.0, 1.0]), StudentT(2.0, [-5.0, 5.0], 0.5)]
)
def test_a_minimum_between_two_modes_is_left(potential):
    rows = np.ones((potential.size or 1, 1))
    model = LatentLinearModel([GaussianFactor(cov=100.0, dim=1), SiteFactor(rows, potential)])
    w = infer(model, "map").mean
    nearby = log_joint(model, w + np.array([[-0.01], [0.0], [0.01]]))
    assert nearby.argmax() == 1
    assert abs(w[0]) > 2.0


def test_map_is_scikit_learns_penalised_maximum():
    ours = infer(LatentLinearModel([GaussianFactor(cov=0.5, dim=3), SiteFactor(ROWS, Logit(LABELS))]), "map")
    theirs = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=1000).fit(ROWS, LABELS)
    np.testing.assert_allclose(ours.mean, theirs.coef_[0], atol=1e-6)


def test_the_lasso_is_a_mode_at_kinks():
    rows = rng.standard_normal((50, 6))
    y = rows @ [2.0, 0, 0, -1.0, 0, 0] + 0.5 * rng.standard_normal(50)
    model = LatentLinearModel([SiteFactor(None, Laplace(0.0, np.full(6, 0.1))), SiteFactor(rows, Gaussian(y, 1.0))])
    ours = infer(model, "map")
    # ½‖y − Xw‖² + 10‖w‖₁ = 50·(scikit-learn's objective at alpha = 10/50)
    theirs = Lasso(alpha=0.2, fit_intercept=False, tol=1e-10).fit(rows, y)
    assert ours.converged
    np.testing.assert_allclose(ours.mean, theirs.coef_, atol=1e-4)
    assert np.all(np.diff(ours.trace) >= -1e-9)


def test_generalised_normal_noise_has_a_mode():
    model = build(GeneralisedNormal(1.3, REALS, 0.5))
    mode = minimize(lambda w: -log_joint(model, w[None])[0], np.zeros(3), method="Nelder-Mead",
                    options={"xatol": 1e-8, "fatol": 1e-12, "maxiter": 5000})  # fmt: skip
    post = infer(model, "map")
    assert log_joint(model, post.mean[None])[0] >= -mode.fun - 1e-6
