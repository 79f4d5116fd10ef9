"""Maximin orders and earlier neighbours against plain searches."""

import numpy as np
import pytest

from latlin.gp import neighbours
from latlin.gp.neighbours import earlier_neighbours, maximin_order


def least_distances(X, order):
    """Distance of every input to the nearest before it in an order."""
    Z = X[order]
    return np.array([np.sqrt(np.min(np.sum((Z[:n] - Z[n]) ** 2, axis=1))) for n in range(1, len(Z))])


def test_every_next_input_is_the_farthest():
    X = np.random.default_rng(0).random((80, 3))
    order = maximin_order(X)
    distances = least_distances(X, order)
    assert sorted(order) == list(range(80))
    assert np.all(np.diff(distances) <= 1e-12)
    for n in (1, 10, 50):
        left = np.setdiff1d(np.arange(80), order[:n])
        to_nearest = np.sqrt(((X[left][:, None] - X[order[:n]]) ** 2).sum(2)).min(1)
        assert distances[n - 1] == pytest.approx(to_nearest.max())


def test_rounds_are_nearly_as_far_apart(monkeypatch):
    X = np.random.default_rng(1).random((1500, 2))
    exact = least_distances(X, maximin_order(X))
    monkeypatch.setattr(neighbours, "DISTANCES", 1)
    order = maximin_order(X)
    assert sorted(order) == list(range(1500))
    assert np.all(least_distances(X, order)[:-1] > 0.4 * exact[:-1])


@pytest.mark.parametrize("count", [1, 7, 500])
def test_neighbours_are_the_nearest_before(count):
    X = np.random.default_rng(2).random((300, 2))
    found = earlier_neighbours(X, count)
    assert found.shape == (300, min(count, 299))
    for n in range(300):
        own = found[n][found[n] >= 0]
        nearest = np.argsort(np.sum((X[:n] - X[n]) ** 2, axis=1))[:count]
        assert set(own) == set(nearest)


def test_equal_inputs_are_ordered():
    X = np.repeat(np.random.default_rng(3).random((40, 2)), 3, axis=0)
    assert sorted(maximin_order(X)) == list(range(120))
    assert earlier_neighbours(X, 5)[10:].min() >= 0
