"""Few nodes about the mode against panels of Gauss–Legendre nodes."""

from __future__ import annotations

import numpy as np
import pytest

from latlin import potentials
from latlin.potentials.about_mode import nearly_gaussian_moments

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(2.0, 200).astype(float)
SHARES = RNG.uniform(0.02, 0.98, 200)
BLOCKS = {
    "generalised": potentials.GeneralisedPoisson(COUNTS, 0.3),
    "linear": potentials.NegativeBinomial(COUNTS, 2.0, variance="linear"),
    "inflated": potentials.ZeroInflated(potentials.Poisson(COUNTS), 0.2),
    "hurdle": potentials.Hurdle(potentials.Poisson(COUNTS), 0.3),
    "beta": potentials.Beta(SHARES, 5.0),
    "beta-binomial": potentials.BetaBinomial(np.minimum(COUNTS, 6.0), 6.0, 3.0),
    "complementary": potentials.Binomial(np.minimum(COUNTS, 6.0), 6.0, link="cloglog"),
    "inverse-gaussian": potentials.InverseGaussian(np.exp(SHARES), 1.0),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_where_few_nodes_are_called_good_they_are_those_of_panels(name: str) -> None:
    block = BLOCKS[name]
    rng = np.random.default_rng(1)
    m, v, power = rng.normal(0.5, 1.0, 200), 10.0 ** rng.uniform(-4.0, 2.0, 200), rng.uniform(0.3, 3.0, 200)
    found, rest = nearly_gaussian_moments(block, m, v, power)
    good = np.setdiff1d(np.arange(200), rest)
    assert len(good) > 60
    with np.errstate(all="ignore"):
        part = block.select(good)
        log_z, mean, variance = part._in_blocks(type(block)._tilted_block, m[good], v[good], power[good])
    np.testing.assert_allclose(found[0, good], log_z, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found[1, good] - mean, 0.0, atol=1e-9 * np.sqrt(variance).max())
    np.testing.assert_allclose(found[2, good], variance, rtol=1e-8)


def test_a_second_top_far_away_is_left_to_panels() -> None:
    # a narrow component that the Gaussian's own tail does not hide
    block = potentials.GaussianMixture([0.5, 0.5], [0.0, 30.0], [5.0, 0.01])
    _, rest = nearly_gaussian_moments(block, np.zeros(1), np.full(1, 4.0), np.full(1, 60.0))
    assert rest.tolist() == [0]
