"""The printed programs for binary factors: they find planted features, and their noise is the expected square error."""

import numpy as np
import pytest

from latlin.reproduce.binary_as_printed import _noise, learnt, learnt_with_relevances
from latlin.reproduce.binary_features import images, n_drawn


def two_features():
    rng = np.random.default_rng(0)
    shapes = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    return (rng.random((200, 2)) < 0.4) @ shapes + 0.05 * rng.standard_normal((200, 4)), shapes


def test_two_features_that_do_not_overlap_are_found():
    x, shapes = two_features()
    found = learnt(x, 2, 30, np.random.default_rng(1))
    assert np.abs(found[:, None] - shapes).max(axis=-1).min(axis=0).max() < 0.05


def test_relevances_shut_off_what_is_not_needed():
    x, _ = two_features()
    kept = learnt_with_relevances(x, 6, 60, np.random.default_rng(1), scale=1.0)
    assert 2 <= kept.active < 6
    assert kept.features.shape == (6, 4)


def test_the_noise_is_the_expected_square_error():
    """⟨‖x − Σ s_i μ_i‖²⟩ by all states of two latents, with a feature that has a variance."""
    rng = np.random.default_rng(2)
    x, means, features = rng.standard_normal((5, 3)), rng.random((5, 2)), rng.standard_normal((2, 3))
    extra = np.array([0.3, 0.1])
    total = 0.0
    for s in np.ndindex(2, 2):
        weight = np.prod(np.where(s, means, 1.0 - means), axis=1)
        total += weight @ (np.square(x - np.array(s) @ features).sum(axis=1) + np.array(s) @ extra)
    square = np.square(features).sum(axis=1) + extra
    assert _noise(x, means, features, square) == pytest.approx(total / x.size)


def test_pixels_are_cut_and_strengths_are_what_was_asked():
    x, on = images(3, n=2000, noise=0.0, weakest=0.5)
    strong = np.linalg.lstsq(on.astype(float), x, rcond=None)[0]
    assert n_drawn(strong) == 8
    assert n_drawn(strong[:3]) == 3
    top = strong.max(axis=1)
    assert top.min() > 0.5
    assert top.max() < 1.0
    np.testing.assert_allclose(images(3, n=5)[0], images(3, n=5, weakest=1.0)[0])
