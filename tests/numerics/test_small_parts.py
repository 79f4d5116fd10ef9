"""Anderson mixing, conjugate gradients, the line search, the way to a generator, and numbers that are too large."""

import numpy as np
import pytest
from scipy import sparse

from latlin.numerics.arrays import check_summable
from latlin.numerics.ascent import backtrack, mix
from latlin.numerics.optimise import solve_columns
from latlin.numerics.rng import generator


def test_anderson_solves_a_linear_fixed_point_in_as_many_steps_as_dimensions():
    rng = np.random.default_rng(0)
    a = 0.9 * np.linalg.qr(rng.standard_normal((4, 4)))[0]
    b = rng.standard_normal(4)
    points, residuals = np.zeros((1, 4)), b[None]
    for _ in range(5):
        x = mix(points, residuals)
        points, residuals = np.vstack([points, x]), np.vstack([residuals, a @ x + b - x])
    np.testing.assert_allclose(points[-1], np.linalg.solve(np.eye(4) - a, b), atol=1e-6)


def test_one_point_gives_the_plain_step():
    np.testing.assert_array_equal(mix(np.array([[1.0, 2.0]]), np.array([[0.5, -1.0]])), [1.5, 1.0])


def test_backtracking_finds_the_first_sufficient_step():
    # f(t) = −(t − 0.2)²: t = 1 and ½ lose, ¼ gains
    length, value, point = backtrack(lambda t: (-((t - 0.2) ** 2), t), -0.04, 0.4)
    assert (length, point) == (0.25, 0.25)
    assert value == pytest.approx(-0.0025)


def test_backtracking_gives_up():
    assert backtrack(lambda t: (-t, None), 0.0, 0.0, max_halvings=5) is None


def test_backtracking_steps_back_into_the_domain():
    assert backtrack(lambda t: (-np.inf if t > 0.3 else t, t), 0.0, 1.0)[0] == 0.25


def test_generators():
    rng = np.random.default_rng(3)
    assert generator(rng) is rng
    assert generator(5).integers(1000) == generator(5).integers(1000)
    old = np.random.RandomState(1)
    assert generator(old).integers(2**40) != generator(old).integers(2**40)
    with pytest.raises(ValueError, match="random_state must be"):
        generator("seed")


def test_numbers_that_are_too_large_are_named():
    for fine in (
        np.array([[1.0, np.nan]]),
        sparse.csr_array(np.eye(2)),
        np.array(["a", "b"]),
        np.zeros((0, 2)),
        np.arange(3),
    ):
        assert check_summable("X", fine) is fine
    for wrong in (np.array([1.0, -1e150, np.nan]), sparse.csr_array(1e150 * np.eye(2))):
        with pytest.raises(ValueError, match=r"X must hold numbers of at most 1e\+140 in size, got 1e\+150"):
            check_summable("X", wrong)


def test_conjugate_gradients_leave_directions_in_which_the_matrix_is_singular():
    a = np.array([[1.0, 1.0], [1.0, 1.0]])
    found = solve_columns(a.dot, np.array([[1.0, 2.0], [-1.0, 2.0]]), np.diag(a), tol=1e-10)
    np.testing.assert_allclose(found, [[0.0, 1.0], [0.0, 1.0]], atol=1e-12)
