"""Log densities between the points where they are known."""

import numpy as np
import pytest

from latlin.hyper.surrogate import log_density_from


def bent(t):
    """A log density with a cubic term along an axis and one between axes, and its gradient."""
    x, y = t.T
    value = -0.5 * (x**2 + y**2) + 0.1 * x**3 - 0.15 * x * y**2 + 0.2 * y
    return value, np.stack([-x + 0.3 * x**2 - 0.15 * y**2, -y - 0.3 * x * y + 0.2], axis=1)


@pytest.fixture
def points():
    return np.random.default_rng(0).uniform(-2.0, 2.0, (14, 2)) * np.arange(14)[:, None].clip(0, 1)


@pytest.mark.parametrize("sloped", [True, False])
def test_known_values_come_back(points, sloped):
    value, slopes = bent(points)
    found = log_density_from(points, value, slopes if sloped else None, np.array([0.0, 0.2]))
    np.testing.assert_allclose(found(points), value, atol=1e-4)
    assert np.all(np.diagonal(found.covariance(points)) < 1e-4)


@pytest.mark.parametrize(("sloped", "accuracy"), [(True, 0.01), (False, 0.1)])
def test_between_them_it_is_as_sure_as_it_says(points, sloped, accuracy):
    value, slopes = bent(points)
    found = log_density_from(points, value, slopes if sloped else None, np.array([0.0, 0.2]))
    new = np.random.default_rng(1).uniform(-1.5, 1.5, (40, 2))
    error = found(new) - bent(new)[0]
    assert np.abs(error).max() < accuracy
    assert np.mean(np.abs(error) <= 3.0 * np.sqrt(np.diagonal(found.covariance(new))) + 1e-4) > 0.9


def test_gradients_belong_to_the_values(points):
    """Covariances of derivatives are derivatives of covariances: one known slope is that of the learnt function."""
    value, slopes = bent(points)
    found = log_density_from(points, value, slopes, np.zeros(2))
    step = 1e-5
    for j in range(2):
        move = step * np.eye(2)[j]
        difference = (found(points + move) - found(points - move)) / (2.0 * step)
        np.testing.assert_allclose(difference, slopes[:, j], atol=1e-3)


def test_small_contradictions_of_the_values_do_not_make_all_unsure():
    """Fits end within a tolerance, so that values and slopes of close points do not quite go together."""
    rng = np.random.default_rng(0)
    t = rng.normal(size=(40, 4))
    t[20:] = t[:20] + 0.3 * rng.normal(size=(20, 4))
    t[0] = 0.0
    wrong = 0.05 * rng.normal(size=40)
    wrong[0] = 0.0
    values, slopes = -0.5 * np.sum(t**2 + 0.1 * t**4, axis=1) + wrong, -t - 0.2 * t**3
    found = log_density_from(t, values, slopes + 0.05 * rng.normal(size=(40, 4)), np.zeros(4))
    new = 0.7 * rng.normal(size=(30, 4))
    assert np.max(np.abs(found(new) + 0.5 * np.sum(new**2 + 0.1 * new**4, axis=1))) < 0.15
    assert np.sqrt(np.diagonal(found.covariance(new)).mean()) < 0.1
