"""What must hold for any model: finite numbers or a refusal, bounds in order, rising traces, dense = sparse.

Some hundred models by default; `pytest --hypothesis-profile=thorough tests/test_properties.py` draws some thousands.
"""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from latlin import ConvergenceWarning, GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials
from latlin.inference.evidence_gradient import evidence_gradient
from latlin.numerics.ascent import rounding

#: every fit is many steps: a quarter of the profile's examples
SOME = settings(max_examples=settings.default.max_examples // 4)
ENGINES = {
    "map": engines.MAP(),
    "laplace": engines.Laplace(),
    "mean-field": engines.MeanField(),
    "lvb": engines.LocalBound(),
    "ep": engines.ExpectationPropagation(),
    "gkl": engines.GaussianKL(),
    "diagonal": engines.GaussianKL(covariance="diagonal"),
    "chevron": engines.GaussianKL(covariance="chevron", rank=1),
}
CONCAVE = ("logit", "probit", "poisson", "ordinal", "gaussian", "laplace", "logistic", "box")
OTHERS = ("student", "cauchy", "mixture", "power", "step", "custom")


def potential(family, y, scale):
    """A block of sites for observations y of that scale."""
    makers = {
        "logit": lambda: potentials.Logit(y > 0),
        "probit": lambda: potentials.Probit(y > 0),
        "poisson": lambda: potentials.Poisson(np.round(np.minimum(np.abs(y), 50.0))),
        "ordinal": lambda: potentials.Ordinal(np.clip(np.round(y + 1), 0, 2), [-0.5, 0.8]),
        "gaussian": lambda: potentials.Gaussian(y, scale),
        "laplace": lambda: potentials.Laplace(y, scale),
        "logistic": lambda: potentials.Logistic(y, scale),
        "box": lambda: potentials.GeneralisedNormal(3.0, y, scale),
        "student": lambda: potentials.StudentT(3.0, y, scale),
        "cauchy": lambda: potentials.Cauchy(y, scale),
        "mixture": lambda: potentials.GaussianMixture([0.7, 0.3], 0.0, [0.1 * scale, scale]),
        "power": lambda: potentials.GeneralisedNormal(0.7, y, scale),
        "step": lambda: potentials.Step(y > 0, 0.05),
        "custom": lambda: potentials.Custom(lambda x: -np.logaddexp(0.0, -x)),
    }
    return makers[family]()


@st.composite
def models(draw, families=CONCAVE + OTHERS, sparse_rows=False, widest=3.0):
    """Any factors, shapes and scales; numbers from a generator, so that shrinking stays simple."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    d, n = draw(st.integers(1, 4)), draw(st.integers(1, 7))
    exponent = draw(st.floats(-widest, widest))
    rows = rng.normal(size=(n, d)) * 10.0**exponent * (rng.random((n, d)) < 0.8)
    y = rng.normal(size=n) * draw(st.sampled_from([0.0, 1.0, 20.0]))
    scale = 10.0 ** draw(st.floats(-2.0, 2.0))
    weight = draw(st.sampled_from([None, 0.5, 2.0]))
    offset = draw(st.sampled_from([None, 0.3]))
    sites = potential(draw(st.sampled_from(families)), y, scale)
    factors = [SiteFactor(sparse.csr_array(rows) if sparse_rows else rows, sites, weight=weight, offset=offset)]
    kind = draw(st.sampled_from(["scalar", "diagonal", "full", "two", "laplace"]))
    spread = 10.0 ** draw(st.floats(-2.0, 2.0))
    if kind == "laplace":
        factors.append(SiteFactor(None, potentials.Laplace(np.zeros(d), spread)))
    elif kind == "full":
        half = rng.normal(size=(d, d))
        factors.append(GaussianFactor(rng.normal(size=d), spread * (half @ half.T + 0.1 * np.eye(d))))
    else:
        factors.append(GaussianFactor(cov=spread if kind == "scalar" else spread * rng.uniform(0.5, 2.0, d), dim=d))
    if kind == "two":
        factors.append(GaussianFactor(rng.normal(size=2), [0.5, 2.0], H=rng.normal(size=(2, d))))
    return LatentLinearModel(factors)


def attempt(model, engine):
    """The posterior, or None after a refusal in words; any other exception or warning fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            return infer(model, engine)
        except ValueError as error:
            refusal = str(error)
    assert len(refusal) > 20
    return None


@SOME
@given(model=models(), name=st.sampled_from(sorted(ENGINES)))
def test_finite_numbers_or_a_clear_refusal(model, name):
    post = attempt(model, ENGINES[name])
    if post is None:
        return
    assert np.all(np.isfinite(post.mean))
    assert np.all(np.isfinite(post.variance))
    assert np.all(post.variance >= 0.0)
    assert np.isfinite(post.log_evidence) or post.evidence_kind == "none"
    assert post.message
    if post.evidence_kind != "none" and post.converged:
        found = evidence_gradient(post)
        for gaussian in found.gaussians:
            assert np.all(np.isfinite(gaussian.d_mean))
            assert np.all(np.isfinite(gaussian.d_cov))
        for site in found.sites:
            assert all(np.all(np.isfinite(value)) for value in site.values())


@SOME
@given(model=models(), name=st.sampled_from(["lvb", "gkl", "mean-field", "diagonal", "laplace"]))
def test_traces_of_climbers_never_fall(model, name):
    post = attempt(model, ENGINES[name])
    if post is None:
        return
    falls = -np.diff(post.trace)
    assert np.all(falls <= 10.0 * rounding(np.abs(post.trace).max()))


@SOME
@given(model=models(families=CONCAVE, widest=1.0))
def test_bounds_are_in_order(model):
    full, diagonal, local = (attempt(model, ENGINES[name]) for name in ("gkl", "diagonal", "lvb"))
    if full is None or not full.converged:
        return
    slack = 1e-5 * (1.0 + abs(full.log_evidence))
    for lower in (diagonal, local):
        assert lower is None or lower.log_evidence <= full.log_evidence + slack
    if local is not None:
        assert local.log_evidence <= local.kl_bound() + slack


@SOME
@given(data=st.data())
def test_sparse_rows_are_dense_rows(data):
    dense = data.draw(models(families=CONCAVE, widest=1.0))
    thin = LatentLinearModel(
        [
            SiteFactor(sparse.csr_array(f.H), f.potential, f.weight, f.offset)
            if isinstance(f, SiteFactor) and f.H is not None
            else f
            for f in (*dense.gaussians, *dense.sites)
        ]
    )
    one, other = (attempt(model, ENGINES["gkl"]) for model in (dense, thin))
    assert (one is None) == (other is None)
    if one is not None and one.converged and other.converged:
        assert one.log_evidence == pytest.approx(other.log_evidence, rel=1e-6, abs=1e-6)
        np.testing.assert_allclose(one.mean, other.mean, atol=1e-4 * np.sqrt(one.variance).max())


@SOME
@given(model=models(widest=1.0), seed=st.integers(0, 1000))
def test_diagnoses_are_finite_and_speak(model, seed):
    post = attempt(model, ENGINES["gkl"])
    if post is None:
        return
    found = post.diagnose(n=400, random_state=seed)
    assert found.verdict in ("reliable", "use with care", "do not use")
    assert found.reason
    assert np.all(np.isfinite(found.mean))
    low, high = found.evidence_interval
    assert low <= high
    assert not np.isnan(low + high)
