"""Figure 7.1: the process before and after five evaluations."""

import numpy as np
import pytest

from reproduction.figure_7_1 import compute, run


def test_posterior_passes_through_the_evaluations():
    figure = compute(size=501)
    at = np.argmin(np.abs(figure.grid[:, None] - figure.points), axis=0)
    np.testing.assert_allclose(figure.posterior.mean[at], figure.values, atol=1e-6)
    assert np.all(figure.posterior.sd[at] < 1e-3)
    assert np.all(np.abs(figure.posterior.draws[:, at] - figure.values) < 1e-3)


def test_prior_is_wide_and_the_posterior_never_wider():
    figure = compute(size=200)
    np.testing.assert_allclose(figure.prior.sd, 1.0)
    assert np.all(figure.posterior.sd <= 1.0 + 1e-9)
    assert figure.prior.draws.shape == (10, 200)
    # between evaluations two units apart: 1 − kᵀK⁻¹k, by hand with two neighbours only is an upper bound
    middle = np.argmin(np.abs(figure.grid - 1.0))
    k = np.exp(-0.5 * (figure.grid[middle] - np.array([0.0, 2.0])) ** 2)
    gram = np.array([[1.0, np.exp(-2.0)], [np.exp(-2.0), 1.0]])
    assert figure.posterior.sd[middle] ** 2 <= 1.0 - k @ np.linalg.solve(gram, k)


def test_figure_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    page, _, path = run(tmp_path / "figures", quick=True)
    assert path.read_bytes()[:4] == b"\x89PNG"
    assert "3 of 3 agree" in page.read_text(encoding="utf8")
