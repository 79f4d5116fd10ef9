"""Ranges of parameters: free coordinates there and back, slopes by differences, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from latlin.potentials.ranges import Above, Between, Increasing, Positive, Range, UnitInterval

RANGES = {
    "positive": (Positive(), np.array([1e-3, 0.5, 40.0])),
    "above": (Above(2.0, start=4.0), np.array([2.001, 3.0, 40.0])),
    "between": (Between(1.0, 2.0, start=1.5), np.array([1.001, 1.3, 1.999])),
    "unit": (UnitInterval(), np.array([0.01, 0.5, 0.99])),
    "increasing": (Increasing(), np.array([-1.0, -0.25, 0.5, 4.0])),
}
EACH = pytest.mark.parametrize(("span", "value"), RANGES.values(), ids=RANGES.keys())


@EACH
def test_there_and_back(span: Range, value: np.ndarray):
    np.testing.assert_allclose(span.from_free(span.to_free(value)), value, rtol=1e-12)
    assert len(span.bounds(value.size)) == value.size
    np.testing.assert_array_equal(span.check("theta", value), value)
    low, high = np.array(span.bounds(value.size)).T
    assert np.all((low < span.to_free(value)) & (span.to_free(value) < high))
    if span.start is not None:
        assert np.isfinite(span.to_free(span.start))


@EACH
def test_slopes_by_differences(span: Range, value: np.ndarray):
    t, h = span.to_free(value), 1e-5
    columns = [(span.from_free(t + h * unit) - span.from_free(t - h * unit)) / (2 * h) for unit in np.eye(t.size)]
    jacobian = np.stack(columns, axis=1)
    slope = span.slope(value)
    np.testing.assert_allclose(np.diag(slope) if slope.ndim == 1 else slope, jacobian, rtol=1e-8, atol=1e-9)
    gradient = np.arange(1.0, 1.0 + value.size)
    np.testing.assert_allclose(span.chain(value, gradient), jacobian.T @ gradient, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("span", "value", "words"),
    [
        (Positive(), [1.0, 0.0], "theta must hold numbers above 0, got 0 at site 1"),
        (Above(2.0, 3.0), 1.0, "theta must hold numbers above 2, got 1"),
        (UnitInterval(), [0.5, 1.0], "theta must hold numbers between 0 and 1, the ends excluded, got 1 at site 1"),
        (Increasing(), [1.0, 1.0], "theta must be strictly increasing"),
        (Positive(), np.nan, "got nan"),
    ],
)
def test_values_outside_are_refused(span: Range, value, words: str):
    with pytest.raises(ValueError, match=words):
        span.check("theta", value)
