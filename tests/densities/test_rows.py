"""Rows behind one interface: squares that are kept and squares some rows at a time are the same."""

import numpy as np
import pytest

from latlin.densities.structured import rows

MATRIX = np.random.default_rng(0).standard_normal((23, 5))


@pytest.mark.parametrize(("kept", "block"), [(10**6, 10**6), (0, 10**6), (0, 20), (0, 1)])
def test_squares_are_the_same_however_they_are_made(monkeypatch, kept, block):
    monkeypatch.setattr(rows, "KEPT", kept)
    monkeypatch.setattr(rows, "PIECE", block)
    some, weights, scale = rows.DenseRows(MATRIX), np.linspace(-1.0, 2.0, 23), np.linspace(0.5, 1.5, 5)
    for _ in range(2):
        np.testing.assert_allclose(some.energy(weights), (MATRIX**2).T @ weights, atol=1e-12)
        np.testing.assert_allclose(some.scaled_inner(scale, scale), MATRIX**2 @ scale**2, atol=1e-12)
    assert ("_few_squares" in vars(some)) == (kept > 0)
