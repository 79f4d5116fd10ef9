"""The reliability curve: frequencies of groups, intervals that hold them, ties kept together."""

import numpy as np
import pytest

from latlin.diagnostics.calibration import reliability_curve


def test_groups_add_up_to_the_data():
    rng = np.random.default_rng(0)
    p = rng.random(1003)
    y = rng.random(1003) < p
    curve = reliability_curve(y, p, bins=10)
    assert curve.size.sum() == 1003
    assert curve.size.max() - curve.size.min() <= 1
    assert np.dot(curve.size, curve.observed) == pytest.approx(y.sum())
    assert np.dot(curve.size, curve.predicted) == pytest.approx(p.sum())
    assert np.all(np.diff(curve.predicted) > 0)
    assert np.all((curve.low <= curve.observed) & (curve.observed <= curve.high))


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(1)
    held = []
    for _ in range(200):
        p = np.repeat(rng.uniform(0.1, 0.9, 5), 60)
        curve = reliability_curve(rng.random(300) < p, p, bins=5)
        held += list((curve.low <= curve.predicted) & (curve.predicted <= curve.high))
    # 1000 intervals of 90 %: four standard errors of a binomial, and Jeffreys' own error of about a percent
    assert abs(np.mean(held) - 0.9) < 4 * np.sqrt(0.09 / len(held)) + 0.01


def test_ties_stay_together():
    curve = reliability_curve([0, 1, 1, 0, 1], [0.5, 0.5, 0.5, 0.5, 0.9], bins=10)
    assert curve.size.tolist() == [4, 1]
    assert curve.observed.tolist() == [0.5, 1.0]


def test_bad_input():
    with pytest.raises(ValueError, match="one length"):
        reliability_curve([0, 1], [0.5])
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        reliability_curve([0, 2], [0.5, 0.5])
