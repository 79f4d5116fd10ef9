"""Gaussian processes on complete grids: those of the dense process, by one small matrix per axis."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from latlin import load
from latlin.densities.gaussian import KroneckerCovariance
from latlin.gp import Columns, GaussianProcessRegressor

PRODUCT = ConstantKernel(1.7) * Columns(Matern(0.8, nu=1.5), 0) * Columns(RBF(0.6), 1) * Columns(Matern(2.0, nu=0.5), 2)


def rows(seed=0):
    rng = np.random.default_rng(seed)
    axes = [np.sort(rng.random(size)) * 3.0 for size in (5, 4, 3)]
    X = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 3)
    X = X[rng.permutation(len(X))]
    return X, 1.0 + np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(len(X)), 3.0 * rng.random((20, 3))


def answers(model, new):
    value, slope = model.log_marginal_likelihood(eval_gradient=True)
    mean, sd = model.predict(new, return_std=True)
    inside = model.posterior_
    cov = model.predict(new, return_cov=True)[1]
    return value, slope, mean, sd, cov, model.leave_one_out(), inside.mean, inside.variance


@pytest.mark.parametrize("kernel", [PRODUCT, ConstantKernel(0.5) * RBF([1.0, 0.7, 2.0]), RBF(0.8)], ids=str)
@pytest.mark.parametrize("normalise", [True, False])
def test_a_grid_is_the_dense_process(kernel, normalise):
    X, y, new = rows()
    one, other = (
        GaussianProcessRegressor(kernel, approximation=kind, hyperparameters="fixed", normalise_y=normalise).fit(X, y)
        for kind in ("exact", "grid")
    )
    for a, b in zip(answers(one, new), answers(other, new), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-8, atol=1e-8)
    assert other.evidence_kind_ == "exact"


def test_parameters_are_learnt_and_kept(tmp_path):
    X, y, new = rows()
    one, other = (
        GaussianProcessRegressor(PRODUCT, approximation=kind, hyperparameters="maximise").fit(X, y)
        for kind in ("exact", "grid")
    )
    assert other.log_evidence_ == pytest.approx(one.log_evidence_, abs=1e-4)
    other.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_allclose(again.predict(new), other.predict(new), rtol=1e-10)
    assert again.log_evidence_ == other.log_evidence_


def test_a_smooth_process_on_a_grid_can_be_diagnosed():
    """Most eigenvalues of its kernel matrix are nothing but rounding."""
    across, down = np.meshgrid(np.linspace(0, 3, 12), np.linspace(0, 2, 10))
    X = np.column_stack([across.ravel(), down.ravel()])
    y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * np.random.default_rng(0).standard_normal(len(X))
    fitted = GaussianProcessRegressor(RBF([4.0, 4.0]), approximation="grid", hyperparameters="fixed").fit(X, y)
    found = fitted.posterior_.diagnose(random_state=0)
    assert found.verdict == "accurate"
    assert found.log_evidence == pytest.approx(fitted.log_evidence_, abs=1e-3)


def test_the_covariance_answers_as_a_matrix():
    rng = np.random.default_rng(1)
    vectors = tuple(np.linalg.qr(rng.standard_normal((n, n)))[0] for n in (3, 2))
    values, place = rng.random(6) + 0.1, rng.permutation(6)
    S = (np.kron(*vectors) * values @ np.kron(*vectors).T)[np.ix_(place, place)]
    own, v = KroneckerCovariance(vectors, values, place), rng.standard_normal((6, 4))
    np.testing.assert_allclose(own.dense(), S, atol=1e-13)
    np.testing.assert_allclose(own.times(v[:, 0]), S @ v[:, 0], atol=1e-13)
    np.testing.assert_allclose(own.diagonal(), np.diag(S), atol=1e-13)
    np.testing.assert_allclose(own.project(v.T), np.diag(v.T @ S @ v), atol=1e-13)
    np.testing.assert_allclose(own.quadratic(v.T), np.diag(v.T @ np.linalg.inv(S) @ v), atol=1e-10)
    assert own.log_det == pytest.approx(np.linalg.slogdet(S)[1])
    np.testing.assert_allclose(np.cov(own.draw(40_000, rng).T), S, atol=0.05)


@pytest.mark.parametrize(
    ("change", "options", "word"),
    [
        (lambda X: X[1:], {}, "every point of a grid once"),
        (lambda X: np.concatenate([X[1:], X[1:2]]), {}, "every point of a grid once"),
        (lambda X: X, {"kernel": Matern([1.0, 1.0, 1.0], nu=1.5)}, "product over the columns"),
        (lambda X: X, {"kernel": RBF(1.0) + WhiteKernel(0.1)}, "product over the columns"),
        (lambda X: X, {"likelihood": "student-t"}, "Gaussian noise"),
    ],
)
def test_what_is_no_grid_is_refused(change, options, word):
    X, _, _ = rows()
    X = change(X)
    with pytest.raises(ValueError, match=word):
        GaussianProcessRegressor(**({"kernel": PRODUCT, "approximation": "grid"} | options)).fit(X, X[:, 0])
