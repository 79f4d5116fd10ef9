"""Closed-form kernel means against tensor quadrature."""

import numpy as np
import pytest

from latlin.quadrature import Gaussian, GaussianMixture, Uniform
from latlin.quadrature.kernels import (
    HALF,
    KERNELS,
    Box,
    Components,
    check_closed_form,
    kernel_double_mean,
    kernel_mean,
    product_double_mean,
    product_mean,
    resolve_kernel,
    square_double_mean,
)

LENGTHS = np.array([0.4, 1.7])
POINTS = np.array([[0.0, 0.0], [0.3, -1.2], [-1.6, 1.5], [1.1, 0.2]])
DIAGONAL = Components(
    np.array([0.3, 0.7]), np.array([[-0.5, 0.4], [0.8, -0.1]]), np.array([np.diag([0.5, 0.2]), np.diag([0.3, 1.1])])
)
FULL = Components(
    np.array([0.4, 0.6]),
    np.array([[-0.5, 0.4], [0.8, -0.1]]),
    np.array([[[0.5, 0.2], [0.2, 0.3]], [[0.7, -0.4], [-0.4, 1.1]]]),
)
MEASURES = {"mixture": DIAGONAL, "box": Box(2)}


def rule(breaks, order=40):
    """Composite Gauss–Legendre on the intervals between sorted breaks, so that kinks lie on the edges."""
    nodes, weights = np.polynomial.legendre.leggauss(order)
    edges = np.unique(breaks)
    half = 0.5 * np.diff(edges)
    middle = 0.5 * (edges[1:] + edges[:-1])
    return (middle[:, None] + half[:, None] * nodes).ravel(), (half[:, None] * weights).ravel()


def axis_rule(measure, kinks):
    reach = HALF if isinstance(measure, Box) else 12.0
    return rule(np.concatenate([np.linspace(-reach, reach, 13), kinks]))


def tensor_rule(measure, point):
    (x, wx), (y, wy) = axis_rule(measure, point[:1]), axis_rule(measure, point[1:])
    grid = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    return grid, np.outer(wx, wy).ravel() * np.exp(measure.logpdf(grid))


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda k: k.name)
@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES.keys())
def test_kernel_mean_is_the_tensor_rule(kernel, measure):
    for point in POINTS:
        grid, weights = tensor_rule(measure, point)
        expected = kernel.gram(point[None], grid, LENGTHS)[0] @ weights
        assert kernel_mean(kernel, LENGTHS, measure, point[None])[0] == pytest.approx(expected, abs=1e-11, rel=1e-10)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda k: k.name)
@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES.keys())
def test_double_mean_is_the_mean_of_the_mean(kernel, measure):
    # z(x) is smooth: over a Gaussian always, over the box up to its edges
    grid, weights = tensor_rule(measure, np.zeros(2))
    expected = kernel_mean(kernel, LENGTHS, measure, grid) @ weights
    assert kernel_double_mean(kernel, LENGTHS, measure) == pytest.approx(expected, rel=1e-10)


def test_full_covariances_with_the_squared_exponential():
    kernel = KERNELS["rbf"]
    grid, weights = tensor_rule(FULL, np.zeros(2))
    expected = kernel.gram(POINTS, grid, LENGTHS) @ weights
    np.testing.assert_allclose(kernel_mean(kernel, LENGTHS, FULL, POINTS), expected, rtol=1e-10)
    assert kernel_double_mean(kernel, LENGTHS, FULL) == pytest.approx(
        kernel_mean(kernel, LENGTHS, FULL, grid) @ weights, rel=1e-10
    )


@pytest.mark.parametrize("length", [0.03, 0.3, 3.0, 30.0])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda k: k.name)
def test_extreme_lengths_and_far_points(kernel, length):
    x, w = rule(np.concatenate([np.linspace(-12.0, 12.0, 801), [2.5]]), order=12)
    density = np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi)
    for point in (0.0, 2.5):
        expected = np.sum(w * density * kernel.gram(np.array([[point]]), x[:, None], np.array([length]))[0])
        got = kernel.normal_mean(np.array(point), np.array(1.0), np.array(length))
        assert got == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("measure", [DIAGONAL, FULL, Box(2)], ids=["diagonal", "full", "box"])
def test_products_are_the_tensor_rule(measure):
    k = KERNELS["rbf"]
    grid, weights = tensor_rule(measure, np.zeros(2))
    weights, grid = weights[weights > 1e-18], grid[weights > 1e-18]
    left = k.gram(POINTS, grid, LENGTHS) * weights
    expected = left @ k.gram(grid, POINTS, LENGTHS)
    np.testing.assert_allclose(product_mean(LENGTHS, measure, POINTS, POINTS), expected, rtol=1e-9, atol=1e-14)
    inner = product_mean(LENGTHS, measure, grid, POINTS)
    np.testing.assert_allclose(product_double_mean(LENGTHS, measure, POINTS), left @ inner, rtol=1e-9, atol=1e-14)
    expected = kernel_mean(k, LENGTHS / np.sqrt(2.0), measure, grid) @ weights
    assert square_double_mean(LENGTHS, measure) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("name", ["matern32", "matern52"])
def test_matern_with_full_covariances_says_what_to_do(name):
    with pytest.raises(ValueError, match="diagonal covariances only; use kernel='rbf'"):
        check_closed_form(resolve_kernel(name), FULL)


def test_unknown_kernel_is_named():
    with pytest.raises(ValueError, match=r"kernel must be one of .* got 'cubic'"):
        resolve_kernel("cubic")


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda k: k.name)
def test_slopes_are_derivatives_in_log_length(kernel):
    rng = np.random.default_rng(0)
    z, w, h = rng.standard_normal((6, 2)), rng.standard_normal((6, 6)), 1e-6
    w = w + w.T

    def total(log_lengths):
        return np.sum(w * kernel.gram(z, z, np.exp(log_lengths)))

    at = np.log(LENGTHS)
    numeric = [(total(at + e) - total(at - e)) / (2.0 * h) for e in h * np.eye(2)]
    slopes = kernel.log_length_slopes(w * kernel.gram(z, z, LENGTHS), z, LENGTHS)
    np.testing.assert_allclose(slopes, numeric, rtol=1e-7, atol=1e-8)


def test_public_measures_have_their_density():
    cov = np.array([[2.0, 0.6], [0.6, 0.5]])
    gaussian = Gaussian([1.0, -2.0], cov)
    mixture = GaussianMixture([1.0, 3.0], [[1.0, -2.0], [0.0, 0.0]], [cov, np.eye(2)])
    x = np.array([[0.3, -1.0], [2.0, 1.0]])

    def density(r, s):
        inside = np.einsum("ni,ij,nj->n", r, np.linalg.inv(s), r)
        return np.exp(-0.5 * inside) / (2.0 * np.pi * np.sqrt(np.linalg.det(s)))

    first = density(x - [1.0, -2.0], cov)
    np.testing.assert_allclose(np.exp(gaussian.logpdf(x)), first, rtol=1e-12)
    np.testing.assert_allclose(np.exp(mixture.logpdf(x)), 0.25 * first + 0.75 * density(x, np.eye(2)), rtol=1e-12)
    box = Uniform([0.0, -1.0], [2.0, 3.0])
    np.testing.assert_allclose(box.logpdf([[1.0, 0.0], [3.0, 0.0]]), [-np.log(8.0), -np.inf])


@pytest.mark.parametrize(
    "measure",
    [
        Gaussian([1.0, -2.0], [[2.0, 0.6], [0.6, 0.5]]),
        GaussianMixture([1.0, 3.0], [[1.0, -2.0], [0.0, 0.0]], [0.5, 1.0]),
        Uniform([0.0, -1.0], [2.0, 3.0]),
    ],
    ids=["gaussian", "mixture", "box"],
)
def test_draws_have_the_moments_of_the_measure(measure):
    n = 40_000
    x = measure.sample(n, random_state=0)
    reference = measure.frame.outward(measure.standard.place(_halton(n, measure.dim + 1)))
    error = reference.std(axis=0) / np.sqrt(n)
    assert np.all(np.abs(x.mean(axis=0) - reference.mean(axis=0)) < 5.0 * error)
    np.testing.assert_allclose(np.cov(x.T), np.cov(reference.T), atol=0.06)
    assert np.all(np.isfinite(measure.logpdf(x)))


def _halton(n, d):
    from scipy.stats import qmc

    return qmc.Halton(d, seed=np.random.default_rng(1)).random(n)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Gaussian([0.0, 0.0], np.array([[1.0, 2.0], [2.0, 1.0]])), "cov must be positive definite"),
        (lambda: Gaussian(0.0, 0.0), "cov must be positive definite"),
        (lambda: Gaussian(np.nan, 1.0), "mean must be finite"),
        (lambda: Gaussian([0.0, 0.0], [1.0, 1.0, 1.0]), "disagree about the number of coordinates"),
        (lambda: Uniform(1.0, 1.0), "lower must be below upper"),
        (lambda: GaussianMixture([1.0, -1.0], [[0.0], [1.0]], 1.0), "weights must be 2 positive numbers"),
        (lambda: GaussianMixture([1.0, 1.0], [[0.0], [1.0]], [1.0]), "covs must have one entry per row of means"),
    ],
)
def test_bad_measures_are_named(make, text):
    with pytest.raises(ValueError, match=text):
        make()
