"""Beta sites have two ways, one for moderate and one for large precisions: where they meet they agree."""

import numpy as np
import pytest
from mpmath import mp
from scipy.integrate import quad
from scipy.stats import beta

from latlin.potentials import Beta
from latlin.potentials.beta import MODERATE

Y = np.array([0.02, 0.3, 0.55, 0.97])
X = np.array([-6.0, -0.4, 0.2, 5.0])


def other(block: Beta) -> Beta:
    """The same sites by the way for large precisions."""
    twin = Beta(block.y, block.precision)
    twin._once("moderate", lambda: False)
    return twin


@pytest.mark.parametrize("precision", [1e-2, 0.7, 5.0, 60.0, MODERATE])
def test_both_ways_agree(precision) -> None:
    one, two = Beta(Y, precision), other(Beta(Y, precision))
    for ask in (
        lambda block: block._expansion(X),
        lambda block: block.derivatives(X),
        lambda block: block._parameter_slopes("precision", X),
        lambda block: block._expected_log(X, np.array([1e-6, 1e-3, 0.04, 0.5])),
        lambda block: (block._expected_parameter_derivative("precision", X, np.array([1e-6, 1e-3, 0.04, 0.5])),),
    ):
        for mine, theirs in zip(ask(one), ask(two), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-10 * (1.0 + precision))


def test_a_precision_beyond_is_large() -> None:
    assert Beta(Y, MODERATE)._is_moderate
    assert not Beta(Y, [1.0, 1.0, 1.0, 1.1 * MODERATE])._is_moderate


def test_third_derivatives_are_those_of_thirty_digits() -> None:
    block = Beta(0.3, 4.0)
    with mp.workdps(30):

        def psi(x):
            a, b = 4 / (1 + mp.exp(-x)), 4 / (1 + mp.exp(x))
            return mp.loggamma(4) - mp.loggamma(a) - mp.loggamma(b) + (a - 1) * mp.log(0.3) + (b - 1) * mp.log(0.7)

        expected = [float(mp.diff(psi, mp.mpf("0.9"), n)) for n in (1, 2, 3)]
    found = np.ravel(block.derivatives(np.array([0.9])))
    np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_expectations_are_integrals() -> None:
    m, s = 0.4, 0.3
    density = lambda x: beta.logpdf(0.3, 5.0 / (1 + np.exp(-x)), 5.0 / (1 + np.exp(x)))  # noqa: E731
    normal = lambda x: np.exp(-0.5 * ((x - m) / s) ** 2) / (s * np.sqrt(2 * np.pi))  # noqa: E731
    expected = quad(lambda x: density(x) * normal(x), m - 9 * s, m + 9 * s, epsabs=1e-13)[0]
    assert Beta(0.3, 5.0).expected_log([m], [s * s]).value[0] == pytest.approx(expected, rel=1e-11)
