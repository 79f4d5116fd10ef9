"""Rows that are scaled without a copy answer as the copy does."""

import numpy as np
import pytest

from latlin.densities.precision import DiagonalWhitening
from latlin.inference.forms.dense import whitened_projections
from latlin.inference.forms.projections import DenseProjections, ScaledProjections
from latlin.numerics.linalg import cholesky


@pytest.mark.parametrize("n", [3, 50])
def test_scaled_rows_answer_as_their_copy(n):
    rng = np.random.default_rng(0)
    rows, scale = rng.standard_normal((n, 4)) / [1e-3, 1.0, 10.0, 1e4], np.array([1e-3, 1.0, 20.0, 1e4])
    weights, u = rng.standard_normal(n), rng.standard_normal(4)
    factor = cholesky(np.eye(4) + 0.3).factor
    scaled, copied = whitened_projections(rows, DiagonalWhitening(scale)), DenseProjections(rows * scale)
    assert isinstance(scaled, ScaledProjections)
    assert scaled.rows is rows
    assert scaled.shape == copied.shape
    for question in (
        lambda p: p.times(u),
        lambda p: p.transposed_times(weights),
        lambda p: np.triu(p.gram(weights)),
        lambda p: p.variances(factor),
        lambda p: p.block(slice(1, 3)),
    ):
        assert question(scaled) == pytest.approx(question(copied), rel=1e-12, abs=1e-13)


def test_scales_whose_rows_have_no_squares_are_copied():
    rows = np.full((5, 2), [1e-170, 1.0])
    projections = whitened_projections(rows, DiagonalWhitening(np.array([1e170, 2.0])))
    assert projections.gram(np.ones(5))[0, 0] == pytest.approx(5.0)
