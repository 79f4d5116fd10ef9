"""Expectations of the softmax against draws, differences and a grid."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr, softmax

from latlin.potentials.softmax import _log_shares_of_wide_row, log_expected_softmax, tilted_log_sum


def test_the_tilted_bound_lies_above_the_expectation_and_its_slopes_are_those_of_differences() -> None:
    rng = np.random.default_rng(1)
    m, v = rng.standard_normal((6, 4)), rng.uniform(0.0, 4.0, (6, 4))
    value, d_mean, d_var = tilted_log_sum(m, v)
    draws = m + np.sqrt(v) * rng.standard_normal((200_000, 6, 4))
    top = draws.max(axis=-1)
    sums = top + np.log(np.exp(draws - top[..., None]).sum(axis=-1))
    assert np.all(value > sums.mean(axis=0) - 4.0 * sums.std(axis=0) / np.sqrt(len(sums)))
    assert np.all(value < sums.mean(axis=0) + 0.6)
    step = 1e-5
    for j in range(4):
        unit = step * np.eye(4)[j]
        by_mean = (tilted_log_sum(m + unit, v)[0] - tilted_log_sum(m - unit, v)[0]) / (2.0 * step)
        by_var = (tilted_log_sum(m, v + unit)[0] - tilted_log_sum(m, np.maximum(v - unit, 0.0))[0]) / (2.0 * step)
        np.testing.assert_allclose(d_mean[:, j], by_mean, atol=1e-7)
        np.testing.assert_allclose(d_var[:, j], by_var, atol=1e-7)


def test_expected_shares_are_those_of_a_grid() -> None:
    mean, sd = (
        np.array([[0.0, 1.0, -2.0], [3.0, 3.0, 0.0], [-40.0, 0.0, 1.0]]),
        np.array([[0.5, 1.0, 2.0], [4.0, 0.1, 1.0], [1.0, 0.5, 0.5]]),
    )
    node, weight = np.polynomial.hermite_e.hermegauss(60)
    z = np.stack(np.meshgrid(node, node, node, indexing="ij"), axis=-1).reshape(-1, 3)
    w = np.prod(np.stack(np.meshgrid(weight, weight, weight, indexing="ij"), axis=-1).reshape(-1, 3), axis=1)
    expected = np.stack([w @ softmax(m + s * z, axis=1) / w.sum() for m, s in zip(mean, sd, strict=True)])
    np.testing.assert_allclose(np.exp(log_expected_softmax(mean, sd)), expected, rtol=2e-5)


def test_wide_rows_are_integrated_by_pieces_as_narrow_ones_by_a_rule() -> None:
    rng = np.random.default_rng(2)
    mean, sd = 3.0 * rng.standard_normal((8, 3)), 10.0 ** rng.uniform(-2.0, 0.9, (8, 3))
    pieces = np.array([_log_shares_of_wide_row(*row) for row in zip(mean, sd, strict=True)])
    np.testing.assert_allclose(np.exp(pieces), np.exp(log_expected_softmax(mean, sd)), atol=1e-10)


@pytest.mark.parametrize("size", [1e4, 1e18, 1e140])
def test_far_out_the_largest_gaussian_decides(size: float) -> None:
    # P(f_1 > f_2) = Φ((m_1 − m_2) / √(v_1 + v_2))
    shares = np.exp(log_expected_softmax(size * np.array([[1.0, -0.5]]), size * np.array([[2.0, 0.5]])))
    np.testing.assert_allclose(shares[0, 0], ndtr(1.5 / np.sqrt(4.25)), atol=1e-6)
    mixed = np.exp(log_expected_softmax(np.array([[3.0, 0.0]]), np.array([[0.0, size]])))
    np.testing.assert_allclose(mixed[0, 0], ndtr(3.0 / size), atol=1e-3)
