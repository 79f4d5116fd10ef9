"""The number of jobs changes the time of a fit, never its result."""

import numpy as np
import pytest
from joblib import parallel_config

from latlin.factor import BinaryFactorAnalysis, GroupFactorAnalysis, NoisyICA


@pytest.mark.parametrize(
    ("estimator", "fitted"),
    [
        (BinaryFactorAnalysis(3, n_init=1, random_state=0), "components_"),
        (GroupFactorAnalysis(2, n_init=2, random_state=0), "lower_bound_"),
        (NoisyICA(2, n_init=1, random_state=0), "mixing_"),
    ],
)
def test_the_result_does_not_depend_on_the_jobs(estimator, fitted):
    X = np.abs(np.random.default_rng(0).laplace(size=(60, 4)))
    alone = getattr(estimator.fit(X), fitted)
    with parallel_config(backend="threading"):
        together = getattr(estimator.set_params(n_jobs=2).fit(X), fitted)
    np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-12)
