"""Pareto smoothing: against ArviZ (stored numbers, and itself where installed), and tails of known shape."""

import numpy as np
import pytest

from latlin.diagnostics.weights import fit_generalised_pareto, smooth_log_weights

LEVELS = (np.arange(400) + 0.5) / 400
#: log weights, and k̂ and the last log weight that ArviZ 0.23.4 gives
STORED = [
    (-0.2 * np.log1p(-LEVELS), 0.2551033481647982, -4.878314410293489),
    (-0.7 * np.log1p(-LEVELS), 0.657400439890002, -2.5332382382770393),
    (-1.5 * np.log1p(-LEVELS), 1.3012675673059972, -0.7092237274855558),
    (2.0 * np.sin(np.arange(400.0)) * LEVELS, -0.13747607155842684, -6.3673772933896595),
]


@pytest.mark.parametrize(("logs", "k", "last"), STORED)
def test_shape_and_smoothed_weights_are_those_of_arviz(logs, k, last):
    smoothed, k_hat = smooth_log_weights(logs)
    assert k_hat == pytest.approx(k, abs=1e-10)
    assert smoothed[-1] == pytest.approx(last, abs=1e-10)


def test_the_same_as_arviz_where_it_is_installed():
    arviz = pytest.importorskip("arviz")
    if not hasattr(arviz, "psislw"):
        pytest.skip("this arviz has no psislw")
    logs = np.random.default_rng(0).standard_t(3, size=1000)
    expected, k = arviz.psislw(logs.copy())
    smoothed, k_hat = smooth_log_weights(logs)
    assert k_hat == pytest.approx(float(k), abs=1e-8)
    np.testing.assert_allclose(smoothed, expected, atol=1e-8)


@pytest.mark.parametrize("k", [-0.4, 0.3, 0.9])
def test_fit_recovers_a_generalised_pareto(k):
    """5,000 exact quantiles: the fit is right up to the pull of ten observations towards ½."""
    u = (np.arange(5000) + 0.5) / 5000
    fitted, sigma = fit_generalised_pareto(2.0 * ((1 - u) ** -k - 1) / k)
    assert fitted == pytest.approx(k, abs=0.02)
    assert sigma == pytest.approx(2.0, rel=0.02)


def test_weights_are_normalised_and_their_order_is_kept():
    logs = 1000.0 + np.random.default_rng(1).normal(size=500)
    smoothed, _ = smooth_log_weights(logs)
    assert np.exp(smoothed).sum() == pytest.approx(1.0)
    assert np.array_equal(np.argsort(smoothed), np.argsort(logs))


def test_equal_weights_have_no_tail_and_few_have_none_to_fit():
    assert smooth_log_weights(np.full(50, 3.0)).k_hat == 0.0
    assert smooth_log_weights([0.0, 1.0, 2.0]).k_hat == np.inf
    assert smooth_log_weights([-np.inf, -np.inf]).k_hat == np.inf


@pytest.mark.parametrize("logs", [[0.0, np.nan], [0.0, np.inf], [[0.0]]])
def test_bad_weights_are_refused(logs):
    with pytest.raises(ValueError, match="log_weights must be"):
        smooth_log_weights(logs)
