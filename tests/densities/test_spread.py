"""Projections that spread over many variables: the same expectations as frequency by frequency."""

import numpy as np
import pytest

from latlin.densities.bases import GaussianMixture, GeneralisedNormal, Normal, SkewNormal
from latlin.densities.characteristic import FrequencyGrid, expect, tabulate
from latlin.densities.spread import LogCharacteristic, expect_spread, spread_grid

DIM, SITES = 12, 30
SHAPES = np.linspace(-0.08, 0.08, DIM)
BASES = {
    "normal": Normal(),
    "one skew normal": SkewNormal.of_skewness(np.array([0.06])),
    "skew normals": SkewNormal.of_skewness(SHAPES),
    "generalised normals": GeneralisedNormal(2.0 + 0.3 * SHAPES),
    "mixtures": GaussianMixture.starting(DIM, SHAPES, 0.2 * SHAPES),
}


def log_sigmoid(x):
    return -np.logaddexp(0.0, -x)


def weights(seed=0):
    rng = np.random.default_rng(seed)
    alpha = rng.uniform(0.9, 1.1, (SITES, DIM)) * rng.choice([-1.0, 1.0], (SITES, DIM))
    return rng.standard_normal(SITES), 0.4 * alpha / np.linalg.norm(alpha, axis=1, keepdims=True)


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("level", [0, 1])
def test_values_and_all_slopes_are_those_of_the_table(name, level):
    base, (beta, alpha) = BASES[name], weights()
    table = tabulate(base, DIM, FrequencyGrid.level(level))
    quick = expect(log_sigmoid, beta, alpha, table, ((0.0, 1.0),), smooth=True, with_shapes=True)
    assert "values" not in vars(table)  # the nodes were never asked for
    fine = tabulate(base, DIM, FrequencyGrid.level(3))
    exact = expect(log_sigmoid, beta, alpha, fine, ((0.0, 1.0),), smooth=False, with_shapes=True)
    for part in ("value", "d_beta", "d_alpha", "d_free"):
        # the last frequency of the first level has |Φ| = 1e-7
        assert np.abs(getattr(quick, part) - getattr(exact, part)).max(initial=0.0) < (2e-8, 2e-10)[level], part


def test_a_site_on_one_variable_is_left_to_the_table():
    beta, alpha = weights()
    alpha[3] = 0.0
    alpha[3, 2] = 0.4
    base = SkewNormal.of_skewness(np.full(DIM, 0.5))
    table = tabulate(base, DIM, FrequencyGrid.level(2))
    found = expect(log_sigmoid, beta, alpha, table, ((0.0, 1.0),), smooth=True, with_shapes=True)
    assert "values" in vars(table)
    exact = expect(log_sigmoid, beta, alpha, table, ((0.0, 1.0),), smooth=False, with_shapes=True)
    for part in ("value", "d_beta", "d_alpha", "d_free"):
        assert np.abs(getattr(found, part) - getattr(exact, part)).max(initial=0.0) < 1e-9, part


def test_an_integrand_that_bends_within_a_point_is_left_to_the_table():
    beta, alpha = weights()
    sigma = np.linalg.norm(alpha, axis=1)
    grid = spread_grid(8.0, float(np.log(1e-7)))
    arguments = beta, sigma, alpha / sigma[:, None], Normal(), np.zeros(DIM, np.int64), grid, np.arange(SITES)
    assert expect_spread(log_sigmoid, *arguments) is not None
    assert expect_spread(lambda x: log_sigmoid(100.0 * x), *arguments) is None


@pytest.mark.parametrize("name", BASES)
def test_polynomials_hold_up_to_their_spans(name):
    base = BASES[name]
    heaviest = np.full(base.rows, 0.5)
    found = LogCharacteristic.of(base, heaviest, 6.0)
    assert np.all(found.span >= 2.0)
    for row in range(base.rows):
        x = np.linspace(0.0, found.span[row], 50)
        powers = (x * x) ** np.arange(found.even.shape[1])[:, None]
        log_phi = -0.5 * x * x + (found.even[row] @ powers) * x**4 + 1j * (found.odd[row] @ powers) * x**3
        error = np.exp(log_phi) - base.characteristic(x)[0][row]
        # the other variables make Φ smaller than φ by e^{−½(t² − x²)}, t = 2x
        assert np.abs(error * np.exp(-1.5 * x * x)).max() < 1e-10


@pytest.mark.parametrize("smooth", [True, False])
@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize("scale", [1.0, 1.5, 2.0, 2.5, 3.0])
def test_rounding_never_raises_the_expectation_of_a_steep_function(scale, level, smooth):
    """⟨−e^x⟩ = −e^{σ²/2}: within the window are values up to e^{14σ}, which must cancel."""
    table = tabulate(Normal(), 2, FrequencyGrid.level(level))
    alpha = scale * np.array([[0.6, 0.8]])
    found = expect(lambda x: -np.exp(x), np.zeros(1), alpha, table, ((0.0, 1.0),), smooth=smooth)
    assert found.value[0] <= -np.exp(0.5 * scale**2)
