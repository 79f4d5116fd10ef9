"""Processes of Poisson counts say when these vary more than the family allows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import latlin
from latlin.gp import GaussianProcessRegressor
from latlin.numerics.alerts import MisfitWarning


def counts(shape: float | None, seed: int = 0):
    """Counts along a smooth rate, with gamma factors of this shape (variance 1/shape) where one is given."""
    rng = np.random.default_rng(seed)
    X = np.linspace(0.0, 6.0, 240)[:, None]
    rate = np.exp(2.5 + np.sin(X[:, 0]))
    factor = 1.0 if shape is None else rng.gamma(shape, 1.0 / shape, len(rate))
    return X, rng.poisson(rate * factor).astype(float)


@pytest.mark.parametrize("seed", range(4))
def test_counts_of_the_family_are_not_overdispersed(seed):
    model = GaussianProcessRegressor(likelihood="poisson", hyperparameters="maximise").fit(*counts(None, seed))
    assert model.finding_ == ""
    assert abs(model.dispersion_ - 1.0) < 0.3


def test_overdispersed_counts_are_said_to_be_so_and_the_remedy_is_silent(tmp_path):
    X, y = counts(4.0)
    # a smooth prior cannot follow what changes from row to row
    kernel = ConstantKernel(4.0) * RBF(1.5, (1.0, 4.0))
    with pytest.warns(MisfitWarning, match="try likelihood='negative-binomial'"):
        model = GaussianProcessRegressor(kernel, likelihood="poisson", hyperparameters="maximise").fit(X, y)
    assert model.dispersion_ > 1.5
    model.save(tmp_path / "process.npz")
    again = latlin.load(tmp_path / "process.npz")
    assert again.finding_ == model.finding_
    other = GaussianProcessRegressor(kernel, likelihood="negative-binomial", hyperparameters="maximise").fit(X, y)
    assert not hasattr(other, "finding_")
    assert other.log_evidence_ > model.log_evidence_ + 20.0
