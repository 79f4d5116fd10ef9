"""What is saved or pickled answers to the last digit as before."""

import pickle
import warnings
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latlin
from latlin import linear
from latlin.linear._learning import LearntShare
from latlin.numerics.alerts import MisfitWarning
from latlin.numerics.stored import Decoder, Encoder
from random_models import CONCAVE, ENGINES, OTHERS, attempt, part, parts

ESTIMATORS = {
    "BayesianLinearRegression": "numbers",
    "BayesianLogisticRegression": "labels",
    "BayesianProbitRegression": "labels",
    "BayesianMultinomialProbitRegression": "labels",
    "BayesianSoftmaxRegression": "labels",
    "BayesianPoissonRegression": "counts",
    "BayesianOrdinalRegression": "levels",
    "RobustRegression": "numbers",
    "SparseRegression": "numbers",
}


@part(1.0)
@given(made=parts(families=CONCAVE + OTHERS), name=st.sampled_from(sorted(ENGINES)))
def test_a_pickled_or_saved_posterior_is_the_posterior(made, name):
    post = attempt(made.model(), ENGINES[name])
    if post is None:
        return
    for again in (pickle.loads(pickle.dumps(post)), stored(post)):
        assert_alike(again, post, made.rows)


def stored(post):
    with TemporaryDirectory() as folder:
        post.save(f"{folder}/posterior.npz")
        return latlin.load(f"{folder}/posterior.npz")


def assert_alike(again, post, rows):
    np.testing.assert_array_equal(again.mean, post.mean)
    np.testing.assert_array_equal(again.covariance(), post.covariance())
    np.testing.assert_array_equal(again.project(rows).variance, post.project(rows).variance)
    np.testing.assert_array_equal(again.trace, post.trace)
    assert repr(again) == repr(post)
    if np.all(post.variance > 0.0):
        draws = post.sample(3, random_state=0)
        np.testing.assert_array_equal(again.sample(3, random_state=0), draws)
        np.testing.assert_array_equal(again.logpdf(draws), post.logpdf(draws))


@st.composite
def tables(draw):
    """Rows of some size and place, and a response of every kind, each level there."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(6, 20)), draw(st.integers(1, 3))
    x = draw(st.sampled_from([0.0, 30.0])) + 10.0 ** draw(st.floats(-6.0, 6.0)) * rng.normal(size=(n, d))
    levels = rng.permutation(np.arange(n) % 3)
    numbers = 10.0 ** draw(st.floats(-4.0, 4.0)) * rng.normal(size=n)
    return x, {"numbers": numbers, "labels": levels > 0, "counts": rng.poisson(2.0, n), "levels": levels}


@pytest.mark.parametrize("name", ESTIMATORS)
@part(0.15)
@given(table=tables(), engine=st.sampled_from(["laplace", "gkl", "ep"]), standardise=st.booleans())
def test_a_saved_estimator_predicts_the_same(name, table, engine, standardise, tmp_path_factory):
    x, responses = table
    engine = "lvb" if (name, engine) == ("SparseRegression", "laplace") else engine  # a prior with kinks
    joint = name in ("BayesianMultinomialProbitRegression", "BayesianSoftmaxRegression")
    options = {} if joint or name == "BayesianLinearRegression" else {"engine": engine}
    standardise = standardise or joint  # joint classes of features of any size take seconds
    if name == "BayesianOrdinalRegression":
        options["order"] = [0, 1, 2]
    model = getattr(linear, name)(prior_scale=1.0, standardise=standardise, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", latlin.ConvergenceWarning)
        warnings.simplefilter("ignore", MisfitWarning)
        model.fit(x, responses[ESTIMATORS[name]])
    path = tmp_path_factory.mktemp("saved") / "model.latlin"
    model.save(path)
    again = latlin.load(path)
    assert np.all(np.isfinite(model.coef_))
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    assert again.log_evidence_ == pytest.approx(model.log_evidence_, rel=0.0, abs=0.0)
    if hasattr(model, "predict_proba"):
        probabilities = model.predict_proba(x)
        np.testing.assert_array_equal(again.predict_proba(x), probabilities)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "value"),
    [("weight", "much"), ("weight", True), ("weight", None), ("values", 3)],
)
def test_a_part_is_of_the_kind_that_its_class_declares(name, value):
    stored = Encoder().encode(LearntShare(0.5, {"scale": 1.0}), "share")
    assert Decoder({}).decode(stored) == LearntShare(0.5, {"scale": 1.0})
    with pytest.raises(ValueError, match=f"{name} of LearntShare must be of the kind"):
        Decoder({}).decode({**stored, "parts": {**stored["parts"], name: value}})
