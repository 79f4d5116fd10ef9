"""Means up to 1e300, variances from 1e-300 to 1e300: numbers or infinities, never NaN, right where they are known."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from scipy.special import log_ndtr

from latlin import potentials
from latlin.potentials.checks import UnboundedExpectation
from potential_table import TABLE, Row

MEAN, VAR = (
    part.ravel() for part in np.meshgrid([0.0, -3.0, 40.0, 1e10, -1e10, 1e300, -1e300], [1e-300, 1.0, 1e4, 1e40, 1e300])
)
#: families that say in a sentence that the power of a distance overflows, and users' own functions
REFUSING = (potentials.GaussianMixture, potentials.GeneralisedNormal, potentials.Custom)
ROWS = [row for row in TABLE if not isinstance(row.make(), REFUSING)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_tilted_moments_are_numbers(row: Row):
    block = row.make()
    log_z, mean, variance = block.tilted_moments(MEAN, VAR)
    assert not np.isnan(log_z).any()
    assert np.isfinite(mean).all()
    assert np.isfinite(variance).all()
    assert np.all(variance >= 0)
    if block.log_concave:
        assert np.all(variance <= VAR * (1 + 1e-6))


@pytest.mark.parametrize("row", [row for row in ROWS if not row.box], ids=lambda row: row.name)
def test_expected_logs_are_numbers(row: Row):
    block, answered = row.make(), 0
    for m, v in zip(MEAN, VAR, strict=True):
        try:
            found = block.expected_log(m, v)
        except UnboundedExpectation:
            continue
        answered += 1
        assert not np.isnan(found).any(), (m, v)
    # where an exponential is too large for a number the family says so
    assert answered >= 9


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_derivatives_are_numbers(row: Row):
    x = np.concatenate([MEAN, [1e154, -1e154]])
    with np.errstate(over="ignore"):
        assert not np.isnan(row.make().derivatives(x)).any()


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_new_labels_far_out_are_certain(link):
    binary = potentials.Logit(1) if link == "logit" else potentials.Probit(1)
    for block in (binary, potentials.Ordinal(1, [-1.0, 1.0], link=link)):
        seen = block.predictive(MEAN, VAR).probabilities
        np.testing.assert_allclose(seen.sum(axis=-1), 1.0, rtol=1e-12)
        # a mean of ten standard deviations leaves no doubt, one of none leaves both ends the same
        far = np.abs(MEAN) > 1e9 + 10.0 * np.sqrt(VAR)
        np.testing.assert_allclose(seen[far, -1], MEAN[far] > 0.0, atol=1e-12)
        np.testing.assert_allclose(seen[MEAN == 0.0, 0], seen[MEAN == 0.0, -1], rtol=1e-8)


def test_half_a_gaussian_is_left_of_a_wide_one():
    for block in (potentials.Logit(1), potentials.Probit(1)):
        log_z, mean, variance = block.tilted_moments([0.0], [1e40])
        np.testing.assert_allclose(log_z, np.log(0.5), rtol=1e-10)
        np.testing.assert_allclose(mean, np.sqrt(2 / np.pi) * 1e20, rtol=1e-10)
        np.testing.assert_allclose(variance, (1 - 2 / np.pi) * 1e40, rtol=1e-9)


@pytest.mark.parametrize("size", [1e9, 1e18, 1e30, 1e60, 1e100, 1e140])
def test_a_wide_gaussian_sees_a_step(size):
    """Under N(st, s²) with a large s every class whose end is near zero has probability Φ(±t)."""
    t, s = np.linspace(-3.0, 3.0, 41), size * np.linspace(0.3, 3.0, 41)
    for low, high in (
        (potentials.Logit(0), potentials.Logit(1)),
        (potentials.Probit(0), potentials.Probit(1)),
        (potentials.Ordinal(0, [-1.0, 1.0]), potentials.Ordinal(2, [-1.0, 1.0])),
        (potentials.Ordinal(0, [-1.0, 1.0], link="logit"), potentials.Ordinal(2, [-1.0, 1.0], link="logit")),
    ):
        for block, sign in ((low, -1.0), (high, 1.0)):
            found = block.tilted_moments(s * t, s**2).log_z
            np.testing.assert_allclose(found, log_ndtr(sign * t), atol=1e-8)


def test_lines_and_parabolas_far_out():
    value, slope, bend = potentials.Logit(1).expected_log([-1e300], [1.0])
    assert (value[0], slope[0], bend[0]) == (-1e300, 1.0, 0.0)
    # log σ is x there: the Gaussian is moved by its variance
    log_z, mean, variance = potentials.Logit(1).tilted_moments([-1e12], [4.0])
    np.testing.assert_allclose([log_z[0], mean[0], variance[0]], [-1e12 + 2.0, -1e12 + 4.0, 4.0], rtol=1e-15)
    value, slope, bend = potentials.Ordinal(0, [0.0]).expected_log([1e30], [1.0])
    np.testing.assert_allclose([value[0], slope[0], bend[0]], [-5e59, -1e30, -0.5], rtol=1e-12)
    # one class of three, 1e30 away: as the nearest end alone
    for link in ("probit", "logit"):
        far = potentials.Ordinal(1, [-1.0, 1.0], link=link).expected_log([-1e30], [1.0])
        near = potentials.Ordinal(2, [-2.0, -1.0], link=link).expected_log([-1e30], [1.0])
        np.testing.assert_allclose(far, near, rtol=1e-12)
    value, slope, _ = potentials.Logistic().expected_log([1e300], [1e40])
    np.testing.assert_allclose([value[0], slope[0]], [-1e300, -1.0], rtol=1e-12)


@pytest.mark.parametrize("v", [1e10, 1e20])
def test_a_parabola_pulls_what_is_far_out(v):
    """Φ(x) is exp(−½x²) far on the left, up to a factor: the mean is m/(1 + v), in which all of m but this cancels."""
    for block in (potentials.Probit(1), potentials.Gaussian()):
        _, mean, variance = block.tilted_moments([-1e35], [v])
        np.testing.assert_allclose(mean, -1e35 / (1.0 + v), rtol=1e-12)
        np.testing.assert_allclose(variance, v / (1.0 + v), rtol=1e-9)


def test_a_steep_wall_stands_where_forces_are_equal():
    # (m − x)/v = e^x at the mode, and nothing else is left
    log_z, mean, variance = potentials.Poisson(0).tilted_moments([1e300], [1.0])
    assert log_z[0] == -np.inf
    np.testing.assert_allclose(mean, np.log(1e300), rtol=1e-3)
    np.testing.assert_allclose(variance, 1e-300, rtol=0.1)


#: ∫ φ(x) e^{tx} dx in closed form, and some t
TRANSFORMS = {
    "logit": (potentials.Logit(1), lambda t: mp.pi / mp.sin(-mp.pi * t), (-0.25, -0.5, -0.9)),
    "probit": (potentials.Probit(1), lambda t: mp.exp(t * t / 2) / -t, (-0.5, -1.0, -3.0)),
    "ordinal": (potentials.Ordinal(0, [0.0]), lambda t: mp.exp(t * t / 2) / t, (0.5, 1.0, 3.0)),
    "logistic": (potentials.Logistic(), lambda t: mp.pi * t / mp.sin(mp.pi * t), (0.25, -0.5, 0.9)),
    "laplace": (potentials.Laplace(), lambda t: 1 / (1 - t * t), (0.25, -0.5, 0.9)),
    "huber": (
        potentials.Huber(threshold=2.0),
        lambda t: _huber_transform(t) / _huber_transform(mp.mpf(0)),
        (0.25, -0.5, 1.5),
    ),
    "poisson": (potentials.Poisson(0), mp.gamma, (0.25, 1.0, 3.0)),
    "counts": (potentials.Poisson(5), lambda t: mp.gamma(5 + t) / 120, (0.25, -4.5, 3.0)),
    "gamma": (potentials.Gamma(1.0, 2.0), lambda t: mp.mpf(2) ** t * mp.gamma(2 - t), (0.25, 1.5, -3.0)),
    "negative binomial": (
        potentials.NegativeBinomial(2, 0.5),
        lambda t: mp.mpf(2) ** t * 3 * mp.beta(2 + t, 2 - t),
        (0.25, -1.5, 1.5),
    ),
}


def _huber_transform(t):
    """∫ exp(tx − x²/2) for |x| ≤ 2 and of exp(tx − 2|x| + 2) beyond."""
    middle = mp.exp(t * t / 2) * mp.sqrt(2 * mp.pi) * (mp.ncdf(2 - t) - mp.ncdf(-2 - t))
    return middle + mp.exp(2 * t - 2) / (2 - t) + mp.exp(-2 * t - 2) / (2 + t)


@pytest.mark.parametrize("size", [1e14, 1e20, 1e30, 1e100, 1e299])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_wide_gaussian_far_out_is_an_exponential(name, size):
    """N(x | tv, v) with a large v is exp(tx − ½t²v)/√(2πv) where φ bends: its moments are derivatives in t."""
    block, transform, slopes = TRANSFORMS[name]
    for t in slopes:
        value, mean, variance = mp.taylor(lambda t: mp.log(transform(t)), mp.mpf(t), 2)
        found = [float(part[0]) for part in block.tilted_moments([t * size], [size])]
        log_z = float(value) - 0.5 * t * (t * size) - 0.5 * np.log(2 * np.pi * size)
        assert found[0] == pytest.approx(log_z, rel=1e-14, abs=1e-6)
        assert found[1] == pytest.approx(float(mean), rel=1e-7, abs=1e-7)
        assert found[2] == pytest.approx(2.0 * float(variance), rel=1e-6)


@pytest.mark.parametrize("size", [1e14, 1e20, 1e30, 1e100, 1e299])
@pytest.mark.parametrize("name", ["logit", "logistic", "laplace", "asymmetric", "log-logistic"])
def test_half_a_gaussian_is_left_where_forces_cancel(name, size):
    """φ is e^x on the left of its bend, and moves N(−v, v) to zero; what is on the right of zero is nothing."""
    block = {
        "logit": potentials.Logit(1),
        "logistic": potentials.Logistic(),
        "laplace": potentials.Laplace(),
        "asymmetric": potentials.AsymmetricLaplace(0.5, 0.0, 0.5),
        "log-logistic": potentials.LogLogistic(1.0, 0, 1.0),
    }[name]
    log_z, mean, variance = (float(part[0]) for part in block.tilted_moments([-size], [size]))
    assert log_z == pytest.approx(-0.5 * size, rel=1e-12)
    assert mean == pytest.approx(-np.sqrt(2 / np.pi * size), rel=1e-6)
    assert variance == pytest.approx((1 - 2 / np.pi) * size, rel=1e-6)
