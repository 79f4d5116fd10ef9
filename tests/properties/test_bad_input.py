"""One argument spoilt: a ValueError that names it, or an answer that is finite; never another exception."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.linear import BayesianLogisticRegression, BayesianPoissonRegression, RobustRegression
from random_models import assert_finite, part

N, D = 5, 2
SPOILT = {
    "not a number": np.nan,
    "infinite": np.inf,
    "huge": 1e300,
    "tiny": 1e-300,
    "negative": -1.0,
    "nothing": np.array([]),
    "words": "many",
    "list of words": ["a", "b"],
    "complex": 1j,
    "ragged": [[1.0], [1.0, 2.0]],
    "one hole": np.array([1.0, 2.0, np.nan, 0.0, 1.0]),
    "cube": np.ones((2, 2, 2)),
    "too long": np.ones(N + 1),
    "wide": np.ones((N, D + 1)),
    "flat": np.zeros((N, D)),
    "object": object(),
    "true": True,
    "mapping": {"a": 1},
}
GOOD = {
    "H": np.array([[1.0, 0.0], [0.5, 1.0], [-1.0, 0.3], [0.2, 0.2], [2.0, -1.0]]),
    "loc": np.array([0.1, -0.2, 0.5, 1.0, -3.0]),
    "scale": 1.0,
    "df": 4.0,
    "weight": np.ones(N),
    "offset": np.zeros(N),
    "mean": np.zeros(D),
    "cov": np.ones(D),
    "dim": D,
}


@part(3.0)
@given(
    name=st.sampled_from(sorted(GOOD)), how=st.sampled_from(sorted(SPOILT)), engine=st.sampled_from(["gkl", "laplace"])
)
def test_a_spoilt_argument_of_a_model(name, how, engine):
    given_ = GOOD | {name: SPOILT[how]}
    try:
        sites = potentials.StudentT(given_["df"], given_["loc"], given_["scale"])
        model = LatentLinearModel(
            [
                GaussianFactor(given_["mean"], given_["cov"], dim=given_["dim"]),
                SiteFactor(given_["H"], sites, weight=given_["weight"], offset=given_["offset"]),
            ]
        )
        post = infer(model, engine)
    except ValueError as error:
        refusal = str(error)
        assert any(word in refusal for word in (name, "potential", "dimension")), refusal
        return
    assert_finite(post)


@pytest.mark.parametrize("estimator", [BayesianLogisticRegression, BayesianPoissonRegression, RobustRegression])
@part(0.6)
@given(which=st.sampled_from(["X", "y", "prior_scale"]), how=st.sampled_from(sorted(SPOILT)))
def test_a_spoilt_argument_of_an_estimator(estimator, which, how):
    rows = {"X": np.tile(GOOD["H"], (2, 1)), "y": np.arange(10) % 2, "prior_scale": 1.0} | {which: SPOILT[how]}
    try:
        model = estimator(engine="laplace", prior_scale=rows["prior_scale"]).fit(rows["X"], rows["y"])
    except (ValueError, TypeError) as error:
        refusal = str(error)
        assert len(refusal) > 20, refusal
        return
    assert np.all(np.isfinite(model.coef_))
