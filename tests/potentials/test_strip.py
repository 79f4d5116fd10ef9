"""Equidistant nodes against panels, on both sides of every limit."""

from __future__ import annotations

import numpy as np
import pytest

from latlin.potentials import Logistic, Logit, Ordinal, Potential, Probit, strip

BLOCKS = (Logit(1), Probit(0), Logistic(0.3, 0.5), Ordinal(1, [-2.0, 2.0]), Ordinal(1, [-1.0, 2.0], link="logit"))
EACH = pytest.mark.parametrize("block", BLOCKS, ids=repr)
MEAN = np.concatenate([[-50.0, -20.0, 20.0, 50.0], np.linspace(-7, 7, 15)])


def _grid(limits: list[float], width: float) -> tuple[np.ndarray, np.ndarray]:
    sds = [0.0, 1e-3, *(width * limit * (1 + e) for limit in limits for e in (-1e-9, 1e-9))]
    mean, sd = (part.ravel() for part in np.meshgrid(MEAN, sds))
    return mean, sd * sd


@EACH
def test_expected_log(block: Potential):
    m, v = _grid([limit for _, limit in strip.EXPECTED], 2.0)
    for got, want in zip(strip.expected_log(block, m, v, 2.0), Potential._expected_log(block, m, v), strict=True):
        # the scale of ½ doubles and quadruples the derivatives
        assert np.max(np.abs(got - want) / np.maximum(1, np.abs(want))) < (
            1e-8 if isinstance(block, Logistic) else 1e-10
        )


@EACH
@pytest.mark.parametrize("power", [0.3, 1.0, 4.0])
def test_tilted_moments(block: Potential, power: float):
    width = np.pi * 0.5 if isinstance(block, Logistic) else 2.8
    m, v = _grid([limit for _, limit, _ in strip.TILTED], width)
    p = np.full(m.size, power)
    got, want = block._tilted_moments(m, v, p), Potential._tilted_moments(block, m, v, p)
    np.testing.assert_allclose(got.log_z, want.log_z, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(got.mean, want.mean, rtol=1e-11, atol=1e-11)
    assert np.all(np.abs(got.variance - want.variance) <= 2e-11 * v)


def test_sites_keep_their_order():
    rng = np.random.default_rng(0)
    m, v, y = rng.normal(size=700) * 3, rng.gamma(1.0, 3.0, size=700), rng.integers(0, 2, size=700)
    block, order = Probit(y), rng.permutation(700)
    for whole, shuffled in zip(
        block.expected_log(m, v), Probit(y[order]).expected_log(m[order], v[order]), strict=True
    ):
        np.testing.assert_allclose(shuffled, whole[order], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("link", ["probit", "logit"])
@pytest.mark.parametrize("cuts", [[-1.0, 0.0, 2.0], [-1.0, -0.99, 2.0], [-30.0, 0.0, 0.001]])
def test_expected_slopes_in_the_cuts_are_those_of_differences(link, cuts):
    rng = np.random.default_rng(0)
    m, v = 4.0 * rng.standard_normal(200), 10.0 ** rng.uniform(-8.0, 3.0, 200)
    block = Ordinal(rng.integers(0, 4, 200), cuts, link)
    expected = block.functional_derivative(
        "cuts", lambda other: other.expected_log(m, v).value, lambda: block.expected_log(m, v).d_mean
    )
    found = block.expected_parameter_derivative("cuts", m, v)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
