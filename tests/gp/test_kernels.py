"""Kernels of some columns and of a frequency in scikit-learn's algebra."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, ExpSineSquared

from latlin import load
from latlin.gp import GaussianProcessRegressor
from latlin.gp.kernels import Columns, Cosine

NAMES = ["year", "month", "dose"]


def additive():
    seasonal = Columns(ExpSineSquared(1.0, 12.0, periodicity_bounds="fixed"), "month", NAMES)
    trend = Columns(ConstantKernel(1.0) * RBF([5.0, 1.0]), ["year", "dose"], NAMES)
    return seasonal * Columns(RBF(3.0), 2) + trend + Columns(DotProduct(1.0), [0])


def data(rows=40):
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.uniform(0, 10, rows), rng.integers(1, 13, rows), rng.random(rows)])
    return X, np.sin(X[:, 1] * np.pi / 6) + 0.1 * X[:, 0] + 0.05 * rng.standard_normal(rows)


def test_the_matrix_is_that_of_the_columns():
    X, _ = data()
    kernel = Columns(RBF([2.0, 0.5]), ["year", "dose"], NAMES)
    np.testing.assert_array_equal(kernel(X), RBF([2.0, 0.5])(X[:, [0, 2]]))
    np.testing.assert_array_equal(kernel(X, X[:5]), RBF([2.0, 0.5])(X[:, [0, 2]], X[:5][:, [0, 2]]))
    np.testing.assert_array_equal(kernel.diag(X), np.ones(len(X)))
    assert kernel == clone(kernel)
    assert kernel != Columns(RBF([2.0, 0.5]), [0, 1])


def test_slopes_of_an_additive_kernel_are_differences():
    X, _ = data(12)
    kernel = additive()
    slopes = kernel(X, eval_gradient=True)[1]
    assert slopes.shape[2] == kernel.n_dims == 6
    for k, unit in enumerate(1e-6 * np.eye(kernel.n_dims)):
        ahead, behind = (kernel.clone_with_theta(kernel.theta + side * unit)(X) for side in (1.0, -1.0))
        np.testing.assert_allclose(slopes[:, :, k], (ahead - behind) / 2e-6, rtol=1e-5, atol=1e-7)


def test_an_additive_process_is_learnt_and_kept(tmp_path):
    X, y = data()
    model = GaussianProcessRegressor(additive(), hyperparameters="maximise").fit(X, y)
    assert np.abs(model.predict(X) - y).mean() < 0.1
    model.save(tmp_path / "model")
    np.testing.assert_allclose(load(tmp_path / "model").predict(X[:5]), model.predict(X[:5]), rtol=1e-9)


@pytest.mark.parametrize(
    ("columns", "names", "word"), [(3, None, "below 2"), ("c", ["a", "b"], "'a', 'b'"), ("c", None, "not given")]
)
def test_columns_that_are_not_there(columns, names, word):
    with pytest.raises(ValueError, match=word):
        Columns(RBF(), columns, names)(np.zeros((3, 2)))


def test_a_spectral_mixture_finds_its_frequency(tmp_path):
    rng = np.random.default_rng(2)
    X = np.sort(rng.uniform(0.0, 20.0, 80))[:, None]
    y = np.cos(2.0 * np.pi * 0.7 * X[:, 0]) + 0.1 * rng.standard_normal(80)
    kernel = ConstantKernel(1.0) * RBF(5.0) * Cosine(0.68)
    model = GaussianProcessRegressor(kernel, hyperparameters="maximise").fit(X, y)
    assert model.kernel_.k2.frequency == pytest.approx(0.7, abs=0.01)
    model.save(tmp_path / "model")
    np.testing.assert_allclose(load(tmp_path / "model").predict(X[:5]), model.predict(X[:5]), rtol=1e-9)


def test_slopes_in_frequencies_are_differences():
    X, kernel = data(12)[0], Cosine([0.3, 0.1, 1.0])
    slopes = kernel(X, eval_gradient=True)[1]
    assert np.all(np.linalg.eigvalsh(kernel(X)) > -1e-12)
    for k, unit in enumerate(1e-6 * np.eye(3)):
        ahead, behind = (kernel.clone_with_theta(kernel.theta + side * unit)(X) for side in (1.0, -1.0))
        np.testing.assert_allclose(slopes[:, :, k], (ahead - behind) / 2e-6, rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match="one number per column"):
        kernel(X[:, :2])
