"""Vecchia's conditionals against dense matrices, and their slopes against differences."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from latlin.gp.conditionals import Neighbourhoods

KERNEL = ConstantKernel(1.3) * Matern([0.3, 0.7], nu=1.5)


def inputs(count=60):
    return np.random.default_rng(0).random((count, 2))


def test_all_neighbours_give_the_process_itself():
    X = inputs()
    given = Neighbourhoods.of(X, 100).conditionals(KERNEL, amplitude=1.5)
    K = 1.5**2 * KERNEL(X)
    np.testing.assert_allclose(np.linalg.inv(given.precision().toarray()), K, atol=1e-10)
    assert given.log_det == pytest.approx(-np.linalg.slogdet(K)[1], abs=1e-9)
    assert given.jitter == 0.0


def test_few_neighbours_are_conditional_densities():
    X = inputs()
    hoods = Neighbourhoods.of(X, 4)
    given, K = hoods.conditionals(KERNEL), KERNEL(X)
    for n in (0, 17, 59):
        near = hoods.neighbours[n][hoods.neighbours[n] >= 0]
        weights = np.linalg.solve(K[np.ix_(near, near)], K[near, n]) if len(near) else np.zeros(0)
        np.testing.assert_allclose(given.weights[n, : len(near)], weights, atol=1e-12)
        assert given.variances[n] == pytest.approx(K[n, n] - K[n, near] @ weights)


def test_slopes_are_differences():
    X = inputs()
    hoods, root = Neighbourhoods.of(X, 6), np.random.default_rng(1).standard_normal((60, 60))
    kernel, moments = KERNEL + WhiteKernel(0.2), root @ root.T

    def log_density(theta):
        given = hoods.conditionals(kernel.clone_with_theta(theta), 1.2)
        return 0.5 * given.log_det - 0.5 * np.sum(given.precision().toarray() * moments)

    found = hoods.slopes(kernel, 1.2, hoods.conditionals(kernel, 1.2), lambda span: moments[hoods.places(span)])
    units = 1e-5 * np.eye(kernel.n_dims)
    differences = [(log_density(kernel.theta + u) - log_density(kernel.theta - u)) / 2e-5 for u in units]
    np.testing.assert_allclose(found, differences, rtol=1e-7)


def test_a_singular_kernel_gets_jitter():
    X = 1e-3 * inputs(200)
    given = Neighbourhoods.of(X, 15).conditionals(RBF(1.0))
    assert 0.0 < given.jitter <= 1e-8
    assert np.all(given.variances > 0.0)


def test_new_inputs_are_conditioned_on_the_nearest():
    X, new = inputs(), np.random.default_rng(4).random((5, 2))
    hoods = Neighbourhoods.of(X, 100)
    found = hoods.predictors(new, KERNEL, 1.0, 0.0)
    weights = np.linalg.solve(KERNEL(X), KERNEL(X, new))
    np.testing.assert_allclose(found.rows(60).toarray(), weights.T, atol=1e-9)
    np.testing.assert_allclose(found.variances, 1.3 - np.sum(KERNEL(X, new) * weights, axis=0), atol=1e-9)
