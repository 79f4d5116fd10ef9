"""Step sites: truncated Gaussians, and the corrected sign of the derivative in the mean."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from latlin.potentials import Step

MEAN, VAR = np.array([0.3, -1.0, 2.0]), np.array([0.2, 1.0, 5.0])


def test_derivatives_are_those_of_the_value():
    site, h = Step([1, 0, 1], [0.1, 0.01, 0.4]), 1e-5
    got = site.expected_log(MEAN, VAR)
    by_mean = (site.expected_log(MEAN + h, VAR).value - site.expected_log(MEAN - h, VAR).value) / (2 * h)
    by_var = (site.expected_log(MEAN, VAR + h).value - site.expected_log(MEAN, VAR - h).value) / (2 * h)
    np.testing.assert_allclose(got.d_mean, by_mean, atol=1e-8)
    np.testing.assert_allclose(got.d_var, by_var, atol=1e-8)
    assert np.all(got.d_mean * [1, -1, 1] > 0)


def test_without_errors_the_gaussian_is_cut():
    site = Step(1, 0.0)
    assert site.log_concave
    got = site.tilted_moments(MEAN, VAR)
    sd = np.sqrt(VAR)
    exact = stats.truncnorm(-MEAN / sd, np.inf, loc=MEAN, scale=sd)
    np.testing.assert_allclose(got.log_z, stats.norm.logcdf(MEAN / sd), rtol=1e-13)
    np.testing.assert_allclose(got.mean, exact.mean(), rtol=1e-12)
    np.testing.assert_allclose(got.variance, exact.var(), rtol=1e-12)
    with pytest.raises(ValueError, match="eps must be positive"):
        site.expected_log(MEAN, VAR)


def test_far_on_the_wrong_side_of_a_hard_step():
    _, mean, variance = Step(1, 0.0).tilted_moments(-50.0, 1e-6)
    # an exponential of rate |m|/v remains, to relative order v/m²
    assert mean == pytest.approx(1e-6 / 50, rel=1e-8)
    assert variance == pytest.approx((1e-6 / 50) ** 2, rel=1e-8)


def test_zero_belongs_to_the_right_side():
    np.testing.assert_allclose(Step([1, 0], 0.1).log_density([0.0, 0.0]), np.log(0.9))


def test_predictive_probabilities():
    predictive = Step([1, 0], 0.1).predictive(MEAN, VAR)
    right = 0.1 + 0.8 * stats.norm.cdf(MEAN / np.sqrt(VAR))
    np.testing.assert_allclose(predictive.probabilities[:, 1], right, rtol=1e-13)
    np.testing.assert_allclose(predictive.probabilities.sum(axis=-1), 1.0, rtol=1e-14)


@pytest.mark.parametrize("eps", [-0.1, 0.5, np.nan])
def test_bad_error_rates(eps: float):
    with pytest.raises(ValueError, match="eps must"):
        Step([1, 0], eps)
