"""Logistic regression of several classes: one softmax, or each class against the rest."""

import numpy as np
import pytest

import latlin
from latlin.linear import BayesianLogisticRegression, BayesianSoftmaxRegression

RNG = np.random.default_rng(5)
X = RNG.standard_normal((90, 3))
LABELS = np.array(["low", "mid", "top"])[np.argmax(X @ RNG.standard_normal((3, 3)) + RNG.gumbel(size=(90, 3)), axis=1)]


def fitted(**options):
    return BayesianLogisticRegression(random_state=0, **{"prior_scale": 1.5, **options}).fit(X, LABELS)


def test_softmax_is_that_of_its_own_estimator():
    model, own = (
        fitted(multi_class="softmax"),
        BayesianSoftmaxRegression(prior_scale=1.5, random_state=0).fit(X, LABELS),
    )
    assert model.log_evidence_ == own.log_evidence_
    np.testing.assert_allclose(model.predict_proba(X), own.predict_proba(X), rtol=1e-14)
    np.testing.assert_array_equal(model.predict_interval(X), own.predict_interval(X))
    np.testing.assert_array_equal(model.sample_y(X, 5), own.sample_y(X, 5))


@pytest.mark.parametrize(
    ("options", "way"),
    [
        ({}, "one-vs-rest"),
        ({"multi_class": "softmax"}, "softmax"),
        ({"multi_class": "softmax", "engine": "gkl"}, "softmax"),
        ({"multi_class": "one-vs-rest"}, "one-vs-rest"),
    ],
)
def test_how_classes_are_fitted(options, way):
    model = fitted(**options)
    assert model.multi_class_ == way
    assert np.ndim(model.log_evidence_) == (way == "one-vs-rest")


def test_two_classes_are_one_response():
    model = BayesianLogisticRegression(multi_class="softmax", prior_scale=1.0).fit(X, X[:, 0] > 0)
    assert model.multi_class_ == "one-vs-rest"
    assert model.coef_.shape == (1, 3)


def test_decisions_are_log_odds_of_the_probabilities():
    model = fitted(multi_class="softmax")
    p = model.predict_proba(X)
    np.testing.assert_allclose(model.decision_function(X), np.log(p) - np.log1p(-p), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("way", ["softmax", "one-vs-rest"])
def test_a_file_keeps_the_way(tmp_path, way):
    model = fitted(multi_class=way)
    model.save(tmp_path / "model.latlin")
    loaded = latlin.load(tmp_path / "model.latlin")
    assert loaded.multi_class_ == way
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.log_evidence_, model.log_evidence_)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": "ep"}, "multi_class='softmax' is fitted by engine 'gkl', got engine='ep'"),
        ({"ard": True, "prior_scale": "auto"}, "one prior scale and a prior mean of 0"),
        ({"prior_mean": 0.2}, "one prior scale and a prior mean of 0"),
        ({"multi_class": "joint"}, "multi_class must be one of"),
    ],
)
def test_options_that_a_softmax_has_not(options, words):
    with pytest.raises(ValueError, match=words):
        fitted(**{"multi_class": "softmax", **options})


def test_a_stream_is_against_the_rest():
    model = BayesianLogisticRegression(prior_scale=1.5).partial_fit(X, LABELS)
    assert model.log_evidence_.shape == (3,)
    with pytest.raises(ValueError, match="partial_fit is for multi_class='one-vs-rest'"):
        fitted(multi_class="softmax").partial_fit(X, LABELS)


@pytest.mark.parametrize(("way", "family"), [("softmax", "softmax"), ("one-vs-rest", "logistic")])
def test_the_summary_says_what_coefficients_change(way, family):
    model = fitted(multi_class=way)
    assert model.family_name() == family
    assert ("against the rest" in str(model.summary())) == (way == "one-vs-rest")
