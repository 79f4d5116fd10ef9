"""Moments of N(x|m, s²) σ(x)^p against adaptive integration, at all sizes of m, s and p."""

import mpmath as mp
import numpy as np
import pytest

from latlin.potentials import Logit
from latlin.potentials.base import Potential
from latlin.potentials.kernels.sites import log_sigmoid_derivatives
from latlin.potentials.logit import MOST_NODES, nodes_needed, sigmoid_tilt


def exact(m, s, p):
    """log Z, mean and variance with 30 digits."""
    with mp.workdps(30):
        log_f = lambda x: -((x - m) ** 2) / (2 * mp.mpf(s) ** 2) - p * mp.log1p(mp.exp(-x))  # noqa: E731
        slope = lambda x: (m - x) / mp.mpf(s) ** 2 + p / (1 + mp.exp(x))  # noqa: E731
        top = mp.findroot(slope, (m, m + p * s * s), solver="illinois", maxsteps=300, tol=1e-40)
        points = sorted({top + s * k for k in range(-14, 15, 2)} | {top + k for k in (-4, -2, 0, 2, 4)})
        moments = [mp.quad(lambda x, k=k: (x - top) ** k * mp.exp(log_f(x) - log_f(top)), points) for k in range(3)]
        mean = moments[1] / moments[0]
        log_z = mp.log(moments[0] / (s * mp.sqrt(2 * mp.pi))) + log_f(top)
        return float(log_z), float(top + mean), float(moments[2] / moments[0] - mean**2)


@pytest.mark.parametrize(("m", "s", "p"), [(0.0, 0.1, 1.0), (-3.0, 1.5, 1.0), (4.0, 2.0, 0.5), (-8.0, 5.0, 7.0)])
def test_against_many_digits(m, s, p):
    one = (np.array([m]), np.array([s]), np.array([p]))
    log_z, mean, variance = sigmoid_tilt(*one, nodes_needed(*one[1:]))[:, 0]
    expected = exact(m, s, p)
    assert log_z == pytest.approx(expected[0], abs=1e-12 * (1.0 + abs(expected[0])))
    assert mean == pytest.approx(expected[1], abs=1e-11 * s)
    assert variance == pytest.approx(expected[2], rel=1e-10)


def test_the_potential_agrees_with_panels_everywhere():
    rng = np.random.default_rng(0)
    n = 600
    m, v = rng.standard_normal(n) * 10.0 ** rng.uniform(-1, 2, n), 10.0 ** rng.uniform(-8, 7, n)
    power = 10.0 ** rng.uniform(-2, 1.5, n)
    sites = Logit(rng.choice([-1, 1], n))
    assert np.any(nodes_needed(np.sqrt(v), power) > MOST_NODES)
    found, panels = sites.tilted_moments(m, v, power), Potential._tilted_moments(sites, m, v, power)
    np.testing.assert_allclose(found.log_z, panels.log_z, rtol=1e-11, atol=1e-11)
    assert np.max(np.abs(found.mean - panels.mean) / np.sqrt(panels.variance)) < 1e-9
    np.testing.assert_allclose(found.variance, panels.variance, rtol=1e-9)


def test_no_sites_and_no_width():
    assert Logit(1).tilted_moments(np.zeros(0), np.zeros(0)).log_z.shape == (0,)
    log_z, mean, variance = Logit(1).tilted_moments(0.7, 0.0)
    assert float(log_z) == pytest.approx(-np.log1p(np.exp(-0.7)), abs=1e-13)
    assert (float(mean), float(variance)) == (pytest.approx(0.7, abs=1e-13), 0.0)


def test_derivatives_of_the_log_sigmoid_from_one_exponential():
    x = np.array([-800.0, -40.0, -3.0, -1e-3, 0.0, 1e-9, 0.7, 5.0, 36.0, 700.0])
    value, first, second, third = log_sigmoid_derivatives(x)
    with mp.workdps(30):
        for n, t in enumerate(map(mp.mpf, x)):
            p, q = 1 / (1 + mp.exp(-t)), 1 / (1 + mp.exp(t))
            known = (mp.log(p) if t > -700 else t, q, -p * q, p * q * (p - q))
            for ours, theirs in zip((value[n], first[n], second[n]), known[:3], strict=True):
                np.testing.assert_allclose(ours, float(theirs), rtol=1e-13, atol=1e-300)
            # a difference of two numbers of about one half
            np.testing.assert_allclose(third[n], float(known[3]), rtol=1e-13, atol=1e-16)
    assert all(np.isnan(part[0]) for part in log_sigmoid_derivatives(np.array([np.nan])))
