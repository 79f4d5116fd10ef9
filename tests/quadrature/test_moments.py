"""Intervals of a mixture of Student-t distributions."""

import numpy as np
import pytest
from scipy.stats import norm, t

from latlin.quadrature.result import ResultMoments, pool_results

MIXED = ResultMoments(np.array([0.7, 0.2, 0.1]), np.array([1.0, 1.3, 0.2]), np.array([0.01, 0.04, 1.0]), 7.0)


@pytest.mark.parametrize("p", [0.001, 0.025, 0.5, 0.975])
def test_quantiles_have_their_probability(p):
    below = t(MIXED.dof, MIXED.means, np.sqrt(MIXED.variances)).cdf(MIXED.quantile(p))
    assert MIXED.weights @ below == pytest.approx(p, rel=1e-6)


def test_one_part_has_its_own_quantiles():
    assert ResultMoments.single(2.0, 9.0, 4.0).quantile(0.9) == pytest.approx(t(4.0, 2.0, 3.0).ppf(0.9))
    assert ResultMoments.single(2.0, 9.0, np.inf).quantile(0.9) == pytest.approx(norm(2.0, 3.0).ppf(0.9))
    assert ResultMoments.single(2.0, 0.0, 4.0).quantile(0.9) == 2.0


def test_pooling_keeps_every_part():
    both = pool_results(np.array([0.25, 0.75]), [MIXED, ResultMoments.single(3.0, 0.5, 7.0)])
    assert both.weights.sum() == pytest.approx(1.0)
    assert both.mean == pytest.approx(0.25 * MIXED.mean + 0.75 * 3.0)
    spread = 0.25 * 0.75 * (MIXED.mean - 3.0) ** 2
    assert both.variance == pytest.approx(0.25 * MIXED.variance + 0.75 * 0.5 + spread)
    assert both.times(-2.0).mean == pytest.approx(-2.0 * both.mean)
    assert both.times(2.0).quantile(0.3) == pytest.approx(2.0 * both.quantile(0.3))
