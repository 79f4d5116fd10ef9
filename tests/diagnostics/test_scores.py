"""Proper scores: closed forms against integrals and draws, and propriety itself."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from latlin.diagnostics.calibration import brier_score, crps_draws, crps_normal, interval_score, log_score


def test_crps_of_a_normal_is_the_integral_of_squared_differences():
    y, mean, std = 1.3, 0.4, 0.7
    left, _ = quad(lambda x: norm.cdf(x, mean, std) ** 2, -10, y)
    right, _ = quad(lambda x: norm.sf(x, mean, std) ** 2, y, 10)
    assert crps_normal(y, mean, std) == pytest.approx(left + right, rel=1e-9)
    assert crps_normal(y, mean, 0.0) == pytest.approx(abs(y - mean))


def test_crps_of_draws_has_no_bias():
    rng = np.random.default_rng(0)
    draws = rng.normal(0.4, 0.7, size=(5, 40_000))
    y = np.full(40_000, 1.3)
    mean = crps_draws(y, draws).mean()
    assert mean == pytest.approx(float(crps_normal(1.3, 0.4, 0.7)), abs=0.01)


@pytest.mark.parametrize("score", [log_score, brier_score])
def test_honest_probabilities_score_best(score):
    rng = np.random.default_rng(1)
    truth = np.array([0.2, 0.5, 0.3])
    y = rng.choice(3, p=truth, size=20_000)

    def mean(p):
        return score(y, np.tile(p, (len(y), 1))).mean()

    assert mean(truth) < mean(np.array([0.25, 0.4, 0.35]))
    assert mean(truth) < mean(np.array([0.1, 0.6, 0.3]))


def test_one_probability_is_that_of_class_one():
    np.testing.assert_allclose(log_score([1, 0], [0.8, 0.8]), -np.log([0.8, 0.2]))
    np.testing.assert_allclose(brier_score([1, 0], [0.8, 0.8]), [2 * 0.04, 2 * 0.64])


def test_interval_score_punishes_what_lies_outside():
    np.testing.assert_allclose(interval_score([0.5, -0.5, 3.0], 0.0, 1.0, 0.8), [1.0, 1.0 + 10 * 0.5, 1.0 + 10 * 2.0])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: log_score([2], [0.5]), "classes 0 … 1"),
        (lambda: log_score([0.5], [0.5]), "classes"),
        (lambda: brier_score([0], [[0.5, 0.6]]), "sum to one"),
        (lambda: log_score([0, 1], [0.5]), "do not go together"),
        (lambda: crps_normal(0.0, 0.0, -1.0), "std must not be negative"),
        (lambda: crps_draws([0.0], [[1.0]]), "at least 2"),
        (lambda: interval_score(0.0, 1.0, 0.0, 0.9), "low must not exceed high"),
        (lambda: interval_score(0.0, 0.0, 1.0, 1.0), "coverage"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
