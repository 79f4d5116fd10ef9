"""Every family against 30-digit integrals of an independent log density; a family that is missing fails.

One expected log of each row is integrated afresh in every run.
"""

from __future__ import annotations

import inspect

import mpmath as mp
import numpy as np
import pytest

from latlin import potentials
from latlin.potentials import Potential
from potential_table import DIGITS, NAMES, POWERS, TABLE, Row, expected, stored

TOLERANCE = 1e-8
ROWS = pytest.mark.parametrize("row", TABLE, ids=NAMES)
SOFT = pytest.mark.parametrize("row", [row for row in TABLE if not row.box], ids=lambda row: row.name)


def test_no_family_is_missing():
    families = {
        value
        for _, value in inspect.getmembers(potentials, inspect.isclass)
        if issubclass(value, Potential) and not inspect.isabstract(value)
    }
    settings = [type(row.make()) for row in TABLE]
    assert {family.__name__ for family in families if settings.count(family) < 2} == set()


@SOFT
def test_references_are_those_of_the_row(row: Row):
    pick = NAMES.index(row.name) % len(row.points())
    with mp.workdps(DIGITS):
        fresh = expected(row, *row.points()[pick])
    np.testing.assert_allclose(fresh, stored(row)[pick, :3], rtol=1e-13, atol=1e-15)


@SOFT
def test_expected_log(row: Row):
    mean, sd = np.array(row.points()).T
    for got, want in zip(row.make().expected_log(mean, sd**2), stored(row)[:, :3].T, strict=True):
        assert np.max(np.abs(got - want) / np.maximum(1, np.abs(want))) < TOLERANCE


@ROWS
@pytest.mark.parametrize("power", POWERS)
def test_tilted_moments(row: Row, power: float):
    mean, sd = np.array(row.points()).T
    start = 3 + 3 * POWERS.index(power)
    log_z, first, variance = stored(row)[:, start : start + 3].T
    got = row.make().tilted_moments(mean, sd**2, power)
    assert np.max(np.abs(got.log_z - log_z) / np.maximum(1, np.abs(log_z))) < TOLERANCE
    assert np.max(np.abs(got.mean - first) / np.maximum(1, np.abs(first))) < TOLERANCE
    assert np.max(np.abs(got.variance - variance) / np.minimum(sd**2, np.maximum(1, variance))) < TOLERANCE


@SOFT
def test_log_density_and_derivatives(row: Row):
    x = np.array([-40.3, -7.1, -1.7, -0.2, 0.6, 1.9, 6.2, 30.7])
    block = row.make()
    rough = 1e-7 if isinstance(block, potentials.Custom) else 1e-10
    with mp.workdps(50):
        want = [[float(mp.diff(row.log_density, mp.mpf(t), n)) for t in x.tolist()] for n in range(4)]
    np.testing.assert_allclose(block.log_density(x), want[0], rtol=1e-13, atol=1e-15)
    for got, line in zip(block.derivatives(x), want[1:], strict=True):
        assert np.max(np.abs(got - line) / np.maximum(1, np.abs(line))) < rough


@SOFT
def test_closed_forms_agree_with_the_quadrature_default(row: Row):
    block = row.make()
    mean, sd = (part.ravel() for part in np.meshgrid([-3.1, 0.4, 2.6], [0.05, 0.7, 2.0]))
    for got, want in zip(block._expected_log(mean, sd**2), Potential._expected_log(block, mean, sd**2), strict=True):
        np.testing.assert_allclose(got, want, rtol=row.default, atol=row.default)
    tilted = (mean, sd**2, np.ones_like(mean))
    for got, want in zip(block._tilted_moments(*tilted), Potential._tilted_moments(block, *tilted), strict=True):
        np.testing.assert_allclose(got, want, rtol=row.default, atol=row.default)


@SOFT
def test_zero_variance_gives_the_point_itself(row: Row):
    block, x = row.make(), np.array([-3.3, 0.7, 4.1])
    first, second, _ = block.derivatives(x)
    for got, want in zip(block.expected_log(x, 0.0), (block.log_density(x), first, 0.5 * second), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    tilted = block.tilted_moments(x, 0.0)
    np.testing.assert_allclose(tilted.log_z, block.log_density(x), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(tilted.mean, x)
    np.testing.assert_allclose(tilted.variance, 0.0)


@SOFT
def test_flags_are_true_of_the_function(row: Row):
    block = row.make()
    x = np.linspace(-20.0, 20.0, 4001)
    bend = np.diff(block.log_density(x), 2)
    if block.log_concave:
        assert bend.max() < 1e-11
    elif not isinstance(block, potentials.Custom):
        assert bend.max() > 1e-9
    if not block.super_gaussian:
        with pytest.raises(ValueError, match="super-Gaussian"):
            block.quadratic_bound(1.0)


@pytest.mark.parametrize("row", [row for row in TABLE if row.make().super_gaussian], ids=lambda row: row.name)
def test_quadratic_bound_is_below_and_touches(row: Row):
    block = row.make()
    centre = float(np.broadcast_to(block.middle, 1)[0])
    for xi in (1e-3, 0.4, 3.0, 25.0):
        a, b, c = (float(part) for part in block.quadratic_bound(xi))
        x = centre + np.concatenate([np.linspace(-60, 60, 4001), [-xi, xi]])
        slack = block.log_density(x) - (-0.5 * a * x * x + b * x + c)
        size = 1 + a * x * x
        assert np.all(slack >= -1e-12 * size)
        assert np.all(np.abs(slack[-2:]) <= 1e-12 * size[-2:])
