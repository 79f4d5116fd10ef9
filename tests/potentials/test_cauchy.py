"""Cauchy sites against the Voigt profile and the Faddeeva function."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import voigt_profile, wofz

from latlin.potentials import Cauchy

MEAN, VAR = np.array([0.3, -1.0, 20.0, 3.0]), np.array([1e-4, 1.0, 5.0, 1e4])


def test_normaliser_is_the_voigt_profile():
    got = Cauchy(0.5, 2.0).tilted_moments(MEAN, VAR)
    np.testing.assert_allclose(got.log_z, np.log(voigt_profile(MEAN - 0.5, np.sqrt(VAR), 2.0)), atol=1e-12)


def test_slope_is_the_faddeeva_function():
    s = np.sqrt(VAR)
    zeta = (2j - (MEAN - 0.5)) / (np.sqrt(2) * s)
    # ⟨2r/(1+r²)⟩ = −√(2π)/σ Im w(ζ)
    np.testing.assert_allclose(
        Cauchy(0.5, 2.0).expected_log(MEAN, VAR).d_mean,
        np.sqrt(2 * np.pi) / s * wofz(zeta).imag,
        rtol=1e-10,
        atol=1e-12,
    )


def test_expected_log_has_a_closed_form_at_the_centre_of_a_wide_gaussian():
    # ⟨log x²⟩ = log σ² − γ − log 2; the next term is 2 N(0)π/σ
    value = Cauchy().expected_log(0.0, 1e12).value
    assert value == pytest.approx(-np.log(np.pi) - (np.log(1e12) - np.euler_gamma - np.log(2)), abs=3e-6)


def test_predictive_has_no_moments():
    predictive = Cauchy(9.0, 0.5).predictive([1.0, -2.0], [0.0, 4.0])
    assert np.all(np.isnan(predictive.mean))
    assert np.all(np.isinf(predictive.variance))
    y = np.array([[-30.0], [0.9], [7.0]])
    np.testing.assert_allclose(predictive.log_density(y)[:, 0], stats.cauchy.logpdf(y[:, 0], 1.0, 0.5), rtol=1e-12)
    np.testing.assert_allclose(predictive.cdf(y)[:, 0], stats.cauchy.cdf(y[:, 0], 1.0, 0.5), rtol=1e-9)
    np.testing.assert_allclose(predictive.quantile(0.5), [1.0, -2.0], atol=1e-9)
    np.testing.assert_allclose(predictive.cdf(predictive.quantile([[1e-3], [0.7]])), [[1e-3] * 2, [0.7] * 2], rtol=1e-8)
    assert np.median(predictive.sample(20001, random_state=0), axis=0) == pytest.approx([1.0, -2.0], abs=0.1)


def test_bad_scale():
    with pytest.raises(ValueError, match="scale must hold positive"):
        Cauchy(0.0, 0.0)
