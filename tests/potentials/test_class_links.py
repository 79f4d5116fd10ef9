"""Expectations of the softmax and of the multinomial probit against draws, differences and a grid."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax, ndtr
from scipy.stats import multivariate_normal

from latlin.potentials.class_links import CLASS_LINKS
from latlin.potentials.multinomial_probit import log_expected_multinomial_probit
from latlin.potentials.softmax import _log_shares_of_wide_row, log_expected_softmax

LABEL = np.eye(4)[[0, 1, 2, 3, 0, 1]]


def rows(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((6, 4, 4)) * np.sqrt([0.001, 0.05, 0.2, 0.5, 1.0, 2.0])[:, None, None]
    return rng.standard_normal((6, 4)), root @ np.swapaxes(root, 1, 2)


@pytest.mark.parametrize("name", CLASS_LINKS)
def test_the_expected_log_is_bounded_from_below_and_its_slopes_are_those_of_differences(name: str) -> None:
    link, (m, V) = CLASS_LINKS[name], rows()
    found = link.expected_log(m, V, LABEL)
    noise = np.random.default_rng(2).standard_normal((6, 2_000, 4))
    draws = m[:, None] + noise @ np.swapaxes(np.linalg.cholesky(V), 1, 2)
    log_p = link.log_probabilities(draws.reshape(-1, 4), np.zeros((12_000, 4))).reshape(draws.shape)
    log_p = np.sum(log_p * LABEL[:, None], axis=2)
    mean, error = log_p.mean(axis=1), log_p.std(axis=1) / np.sqrt(2_000)
    assert np.all(found.value < mean + 4.0 * error)
    assert np.all(found.value > mean - 4.0 * error - 0.01 - 0.2 * np.trace(V, axis1=1, axis2=2))
    step = 1e-5
    for j in range(4):
        unit = step * np.eye(4)[j]
        by_mean = link.expected_log(m + unit, V, LABEL).value - link.expected_log(m - unit, V, LABEL).value
        np.testing.assert_allclose(found.slope[:, j], by_mean / (2.0 * step), atol=1e-7)
        for k in range(j + 1):
            pair = step * (np.eye(4)[j][:, None] * np.eye(4)[k] + np.eye(4)[k][:, None] * np.eye(4)[j]) / 2.0
            by_cov = link.expected_log(m, V + pair, LABEL).value - link.expected_log(m, V - pair, LABEL).value
            np.testing.assert_allclose(-0.5 * found.curvature[:, j, k], by_cov / (2.0 * step), atol=1e-6)


@pytest.mark.parametrize("name", CLASS_LINKS)
def test_a_shift_of_all_classes_changes_nothing(name: str) -> None:
    link, (m, V) = CLASS_LINKS[name], rows()
    here, there = link.expected_log(m, V, LABEL), link.expected_log(m + 3.0, V + 2.0, LABEL)
    for one, other in zip(here, there, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)


def test_expected_shares_of_the_softmax_are_those_of_a_grid() -> None:
    mean, sd = (
        np.array([[0.0, 1.0, -2.0], [3.0, 3.0, 0.0], [-40.0, 0.0, 1.0]]),
        np.array([[0.5, 1.0, 2.0], [4.0, 0.1, 1.0], [1.0, 0.5, 0.5]]),
    )
    node, weight = np.polynomial.hermite_e.hermegauss(60)
    z = np.stack(np.meshgrid(node, node, node, indexing="ij"), axis=-1).reshape(-1, 3)
    w = np.prod(np.stack(np.meshgrid(weight, weight, weight, indexing="ij"), axis=-1).reshape(-1, 3), axis=1)
    each = [w @ np.exp(log_softmax(m + s * z, axis=1)) / w.sum() for m, s in zip(mean, sd, strict=True)]
    found = CLASS_LINKS["logit"].log_probabilities(mean, sd)
    np.testing.assert_allclose(np.exp(found), np.stack(each), rtol=2e-5)


def test_expected_shares_of_the_probit_are_those_of_an_orthant() -> None:
    mean, sd = np.array([[0.0, 1.0, -2.0], [3.0, 3.0, 0.0], [-6.0, 0.0, 1.0]]), np.array([[0.5, 1.0, 2.0]] * 3)
    found = np.exp(CLASS_LINKS["probit"].log_probabilities(mean, sd))
    for k in range(3):
        # f_j + ε_j − f_k − ε_k < 0 for both other classes
        differ = np.delete(np.eye(3), k, axis=0) - np.eye(3)[k]
        for row in range(3):
            spread = differ @ np.diag(1.0 + sd[row] ** 2) @ differ.T
            exact = multivariate_normal.cdf(np.zeros(2), differ @ mean[row], spread)
            assert found[row, k] == pytest.approx(exact, rel=1e-6, abs=1e-10)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)


def test_wide_rows_are_integrated_by_pieces_as_narrow_ones_by_a_rule() -> None:
    rng = np.random.default_rng(2)
    mean, sd = 3.0 * rng.standard_normal((8, 3)), 10.0 ** rng.uniform(-2.0, 0.9, (8, 3))
    pieces = np.array([_log_shares_of_wide_row(*row) for row in zip(mean, sd, strict=True)])
    np.testing.assert_allclose(np.exp(pieces), np.exp(log_expected_softmax(mean, sd)), atol=1e-10)


@pytest.mark.parametrize("expected", [log_expected_softmax, log_expected_multinomial_probit])
@pytest.mark.parametrize("size", [1e4, 1e18, 1e140])
def test_far_out_the_largest_gaussian_decides(size: float, expected) -> None:
    # P(f_1 > f_2) = Φ((m_1 − m_2) / √(v_1 + v_2))
    shares = np.exp(expected(size * np.array([[1.0, -0.5]]), size * np.array([[2.0, 0.5]])))
    np.testing.assert_allclose(shares[0, 0], ndtr(1.5 / np.sqrt(4.25)), atol=1e-6)
    mixed = np.exp(expected(np.array([[3.0, 0.0]]), np.array([[0.0, size]])))
    np.testing.assert_allclose(mixed[0, 0], ndtr(3.0 / size), atol=1e-3)
