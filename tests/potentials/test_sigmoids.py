"""Powers of σ and 1 − σ with their derivatives, also where one of both has no digits left."""

import numpy as np
import pytest
from mpmath import mp

from latlin.potentials.sigmoids import Sigmoids

ONE = np.ones(())


@pytest.mark.parametrize("x", [-750.0, -40.0, -1.0, 0.0, 1.3, 40.0, 750.0])
@pytest.mark.parametrize(("up", "down", "rate"), [(2.0, 3.0, 1.0), (0.0, 1.0, 1.0), (5.0, 0.5, -1.7)])
def test_derivatives_are_those_of_thirty_digits(x, up, down, rate) -> None:
    form = Sigmoids(0.3 * ONE, up * ONE, down * ONE, 0.2 * ONE, rate * ONE)
    found = [float(part) for part in form.expansion(np.asarray(x))]
    with mp.workdps(30 + int(abs(rate * x))):
        t, r = rate * mp.mpf(x) + mp.mpf("0.2"), mp.mpf(rate)
        p, q = 1 / (1 + mp.exp(-t)), 1 / (1 + mp.exp(t))
        n = up + down
        expected = [
            0.3 + up * mp.log(p) + down * mp.log(q),
            r * (up * q - down * p),
            -(r**2) * n * p * q,
            r**3 * n * p * q * (p - q),
        ]
    np.testing.assert_allclose(found, [float(each) for each in expected], rtol=1e-11, atol=1e-290)


def test_shapes_and_values_are_those_of_the_log_density() -> None:
    x = np.random.default_rng(0).normal(0.0, 5.0, (3, 4))
    form = Sigmoids(np.zeros(4), np.arange(4.0), np.full(4, 2.5), np.linspace(-1, 1, 4), ONE)
    found = form.expansion(x)
    assert all(part.shape == (3, 4) for part in found)
    np.testing.assert_allclose(found[0], form.log_density(x), rtol=1e-13)
