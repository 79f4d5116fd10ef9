"""Counts that are none are refused by name, where users meet them."""

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, compare, infer
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor
from latlin.numerics.counts import whole

MODEL = LatentLinearModel([GaussianFactor(dim=2)])
X, Y = np.arange(12.0)[:, None], np.arange(12) % 2


@pytest.mark.parametrize("value", [-1, 1.5, "a", None, True])
def test_what_is_no_count(value):
    with pytest.raises(ValueError, match="n_samples must be an integer of at least 0"):
        whole("n_samples", value)


def test_counts_pass():
    assert whole("n", np.int64(4), 4) == 4


def test_draws():
    with pytest.raises(ValueError, match="count must be an integer"):
        infer(MODEL, "laplace").sample(-1)


def test_no_engines():
    with pytest.raises(ValueError, match="at least one engine"):
        compare(MODEL, [])


@pytest.mark.parametrize(
    ("arguments", "match"),
    [({"n_restarts": -1}, "n_restarts"), ({"kernel": "rbf"}, "kernel must be a kernel of"), ({"max_iter": 0}, "max_i")],
)
def test_gaussian_processes(arguments, match):
    for estimator in (GaussianProcessClassifier, GaussianProcessRegressor):
        with pytest.raises(ValueError, match=match):
            estimator(**arguments).fit(X, Y)
