"""Passes along a chain against dense matrices."""

import numpy as np
import pytest
from scipy import sparse

from latlin.densities.chain import Chain, ChainCovariance, smooth
from latlin.numerics.chain_kernels import chain_slopes


def chain(steps=7, width=2, seed=0):
    rng = np.random.default_rng(seed)
    phi = 0.6 * rng.standard_normal((steps, width, width))
    roots = np.tril(0.5 * rng.standard_normal((steps, width, width))) + np.eye(width)
    return Chain(phi, roots @ np.swapaxes(roots, 1, 2), np.linspace(1.0, 0.5, width))


def dense(c):
    """L, as an innovation moves all later states."""
    L = np.zeros((c.steps, c.width, c.steps, c.width))
    for t in range(c.steps):
        carried = np.linalg.cholesky(c.W[t])
        for later in range(t, c.steps):
            carried = carried if later == t else c.phi[later] @ carried
            L[later, :, t] = carried
    return L.reshape(c.dim, c.dim)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_chain_is_its_triangle(width):
    c, rng = chain(width=width), np.random.default_rng(1)
    L, v = dense(c), rng.standard_normal((c.dim, 3))
    np.testing.assert_allclose(c.apply(v), L @ v, atol=1e-12)
    np.testing.assert_allclose(c.solve(v), np.linalg.solve(L, v), atol=1e-11)
    np.testing.assert_allclose(c.apply_transposed(v[:, 0]), L.T @ v[:, 0], atol=1e-12)
    np.testing.assert_allclose(c.rows(v.T), v.T @ L, atol=1e-12)
    Q = np.linalg.inv(L @ L.T)
    np.testing.assert_allclose(c.precision().toarray(), Q, atol=1e-9)
    np.testing.assert_allclose(c.times_precision(v[:, 0]), Q @ v[:, 0], atol=1e-9)
    assert c.log_det == pytest.approx(np.linalg.slogdet(L)[1])


def sites(c, seed=2):
    rng = np.random.default_rng(seed)
    gamma, nu = rng.random(c.steps), rng.standard_normal(c.steps)
    gamma[1], gamma[3] = 0.0, -0.02
    return gamma, nu, np.kron(np.eye(c.steps), c.h)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_smoothing_is_conditioning(width):
    c = chain(width=width)
    (gamma, nu, H), L = sites(c), dense(c)
    S = np.linalg.inv(np.linalg.inv(L @ L.T) + H.T @ np.diag(gamma) @ H)
    found = smooth(c, gamma, nu)
    np.testing.assert_allclose(found.x.ravel(), S @ H.T @ nu, atol=1e-11)
    np.testing.assert_allclose(found.variance, np.diag(H @ S @ H.T), atol=1e-11)
    assert found.log_det == pytest.approx(np.linalg.slogdet(np.eye(c.dim) + L.T @ H.T @ np.diag(gamma) @ H @ L)[1])
    assert smooth(c, gamma - 1e3, nu) is None


def test_the_covariance_answers_as_a_matrix():
    c, rng = chain(), np.random.default_rng(3)
    (gamma, _, H), L = sites(c), dense(c)
    S = np.linalg.inv(np.linalg.inv(L @ L.T) + H.T @ np.diag(gamma) @ H)
    own, rows = ChainCovariance(c, gamma), rng.standard_normal((4, c.dim))
    np.testing.assert_allclose(own.dense(), S, atol=1e-11)
    np.testing.assert_allclose(own.diagonal(), np.diag(S), atol=1e-11)
    np.testing.assert_allclose(own.times(rows[0]), S @ rows[0], atol=1e-11)
    np.testing.assert_allclose(own.project(rows), np.diag(rows @ S @ rows.T), atol=1e-10)
    np.testing.assert_allclose(own.quadratic(rows), np.diag(rows @ np.linalg.inv(S) @ rows.T), atol=1e-9)
    assert own.log_det == pytest.approx(np.linalg.slogdet(S)[1])
    mixed = sparse.csr_array(np.concatenate([H, np.roll(H, 1, axis=1) + H, np.zeros((1, c.dim))]))
    dense_rows = mixed.toarray()
    np.testing.assert_allclose(own.project(mixed), np.diag(dense_rows @ S @ dense_rows.T), atol=1e-11)


@pytest.mark.parametrize("negative", [True, False])
def test_draws_have_the_covariance(negative):
    c = chain(steps=4)
    gamma = np.array([0.5, 0.0, 3.0, -0.02 if negative else 0.1])
    own = ChainCovariance(c, gamma)
    draws = own.draw(60_000, np.random.default_rng(4))
    np.testing.assert_allclose(np.cov(draws.T), own.dense(), atol=0.08 * np.abs(own.dense()).max())


def test_slopes_are_differences():
    c = chain()
    gamma, nu, _ = sites(c)
    pull = np.random.default_rng(5).standard_normal(c.steps)

    def log_z(phi, W, own):
        found = smooth(Chain(phi, W, c.h), gamma, own)
        return 0.5 * own @ (found.x @ c.h) - 0.5 * found.log_det

    found, moved = smooth(c, gamma, nu), smooth(c, gamma, pull)
    zero = np.zeros_like(found.m)
    by_w, by_phi = chain_slopes(c.phi, found.m, found.P, found.r, found.N, zero, zero)
    both_w, both_phi = chain_slopes(c.phi, found.m, found.P, found.r, found.N, moved.m, moved.r)
    rng, step = np.random.default_rng(6), 1e-6
    for _ in range(4):
        d_phi, d_w = rng.standard_normal(c.phi.shape), rng.standard_normal(c.W.shape)
        d_w += np.swapaxes(d_w, 1, 2)
        ends = [log_z(c.phi + s * d_phi, c.W + s * d_w, nu) for s in (step, -step)]
        assert np.sum(by_w * d_w) + np.sum(by_phi * d_phi) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6)
        # the movement adds pullᵀ d(mean of f)
        means = [smooth(Chain(c.phi + s * d_phi, c.W + s * d_w, c.h), gamma, nu).x @ c.h for s in (step, -step)]
        more = np.sum((both_w - by_w) * d_w) + np.sum((both_phi - by_phi) * d_phi)
        assert more == pytest.approx(pull @ (means[0] - means[1]) / (2 * step), rel=1e-5)
