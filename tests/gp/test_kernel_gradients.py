"""Gradients of sums over kernels of two sets of inputs, against scikit-learn's own and against differences."""

import numpy as np
import pytest
from sklearn.gaussian_process import kernels

from latlin.gp.kernel_gradients import cross, pull, pull_diagonal

KERNELS = [
    kernels.ConstantKernel(1.7) * kernels.RBF([0.8, 1.5]),
    kernels.ConstantKernel(0.6) * kernels.RBF(1.3) + kernels.WhiteKernel(0.2),
    kernels.Matern([0.7, 1.4], nu=0.5),
    kernels.Matern(1.1, nu=1.5) * kernels.ConstantKernel(2.0, "fixed"),
    kernels.Matern([1.1, 0.9], nu=2.5) + kernels.ConstantKernel(0.3),
    kernels.RBF([0.8, 1.5], "fixed") + kernels.DotProduct(0.7),
    kernels.RationalQuadratic(1.2, 0.8) * kernels.RBF(2.0),
    kernels.ExpSineSquared(1.1, 2.3) * kernels.Matern(1.5, nu=np.inf),
    kernels.RBF(0.9) ** 1.7,
]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_gradients_in_parameters_are_those_of_the_kernel(kernel):
    """With both sets the same, off the diagonal, where scikit-learn has gradients."""
    rng = np.random.default_rng(0)
    X, G = 3.0 + rng.standard_normal((12, 2)), rng.standard_normal((12, 12))
    np.fill_diagonal(G, 0.0)
    K, slopes = kernel(X, eval_gradient=True)
    off = ~np.eye(12, dtype=bool)
    np.testing.assert_allclose(cross(kernel, X, X)[off], K[off], rtol=1e-12)
    found = pull(kernel, X, X.copy(), G).theta
    np.testing.assert_allclose(found, np.einsum("nm,nmp->p", G, slopes), rtol=1e-9, atol=1e-10)
    g = rng.standard_normal(12)
    at_diagonal = np.einsum("n,nnp->p", g, slopes)
    np.testing.assert_allclose(pull_diagonal(kernel, X, g), at_diagonal, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_gradients_in_inputs_are_those_of_differences(kernel):
    rng = np.random.default_rng(1)
    X, Z, G = rng.standard_normal((9, 2)), rng.standard_normal((4, 2)), rng.standard_normal((9, 4))
    found, h = pull(kernel, X, Z, G).inputs, 1e-6
    for m, d in np.ndindex(*Z.shape):
        up, down = Z.copy(), Z.copy()
        up[m, d] += h
        down[m, d] -= h
        slope = np.sum(G * (cross(kernel, X, up) - cross(kernel, X, down))) / (2 * h)
        assert found[m, d] == pytest.approx(slope, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(("length", "shift"), [(1.0, 1e6), (1e-3, 0.0), ([3.0, 1e-4], -50.0)])
def test_inputs_far_from_the_origin_or_apart_lose_no_digits(length, shift):
    rng = np.random.default_rng(2)
    X, Z = shift + rng.standard_normal((9, 2)), shift + rng.standard_normal((4, 2))
    Z[0] = X[0] + 1e-4 * np.ravel(length)[0]
    kernel = kernels.ConstantKernel(2.0) * kernels.RBF(length)
    apart = (X[:, None] - Z) / length
    np.testing.assert_allclose(cross(kernel, X, Z), 2.0 * np.exp(-0.5 * (apart**2).sum(axis=2)), rtol=1e-11)
