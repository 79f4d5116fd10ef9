"""Whatever the model: finite numbers or a refusal in words, from every engine, at every scale; climbers never fall.

Several hundred models in this folder; `pytest --hypothesis-profile=thorough tests/properties` draws many more.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latlin import engines
from latlin.inference.evidence.gradient import evidence_gradient
from latlin.numerics.ascent import rounding
from random_models import ENGINES, assert_finite, attempt, part, parts

CLIMBERS = ("lvb", "gkl", "mean-field", "diagonal", "chevron", "laplace")
AFFINE = engines.AffineKL(max_iter=20)


@pytest.mark.parametrize("name", ENGINES)
@part(0.5)
@given(made=parts(), kind=st.sampled_from(["dense", "dense", "sparse", "operator"]))
def test_finite_numbers_or_a_clear_refusal(name, made, kind):
    post = attempt(made.model(kind), ENGINES[name])
    if post is None:
        return
    assert_finite(post)
    if name in CLIMBERS:
        falls = -np.diff(post.trace)
        assert np.all(falls <= 10.0 * rounding(np.abs(post.trace).max()))


@pytest.mark.parametrize("names", [("map", "laplace", "lvb"), ("gkl", "ep"), ("mean-field", "diagonal", "chevron")])
@part(0.5)
@given(data=st.data())
def test_scales_of_eight_orders_either_way(names, data):
    made = data.draw(parts(widest=8.0))
    post = attempt(made.model(), ENGINES[data.draw(st.sampled_from(names))])
    if post is not None:
        assert_finite(post)


@part(0.1)
@given(made=parts(widest=1.0))
def test_affine_posteriors_are_finite_or_refused(made):
    post = attempt(made.model(), AFFINE)
    if post is not None:
        assert_finite(post)
        assert np.all(np.isfinite(post.logpdf(post.sample(3, random_state=0))))


@part(1.0)
@given(made=parts(), name=st.sampled_from(["laplace", "ep", "gkl", "lvb", "mean-field"]))
def test_gradients_of_the_evidence_are_finite(made, name):
    post = attempt(made.model(), ENGINES[name])
    if post is None or post.evidence_kind == "none" or not post.converged:
        return
    found = evidence_gradient(post)
    for gaussian in found.gaussians:
        assert np.all(np.isfinite(gaussian.d_mean))
        assert np.all(np.isfinite(gaussian.d_cov))
    for site in found.sites:
        assert all(np.all(np.isfinite(value)) for value in site.values())


@part(0.5)
@given(made=parts(widest=1.0), seed=st.integers(0, 1000))
def test_diagnoses_are_finite_and_speak(made, seed):
    post = attempt(made.model(), ENGINES["gkl"])
    if post is None:
        return
    found = post.diagnose(n=400, random_state=seed)
    assert found.verdict in ("accurate", "rough", "wrong")
    assert found.reason
    assert np.all(np.isfinite(found.mean))
    low, high = found.evidence_interval
    assert low <= high
    assert not np.isnan(low + high)
