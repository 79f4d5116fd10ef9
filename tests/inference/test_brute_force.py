"""Gaussian KL against integration and an independent optimiser, in one to three dimensions."""

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer
from latlin.potentials import Cauchy, Laplace, Logistic, Logit, Ordinal, Poisson, Probit, StudentT
from reference import PlainBound, brute_force

rng = np.random.default_rng(7)
ROWS = {d: rng.standard_normal((6, d)) for d in (1, 2, 3)}
FULL = {
    1: np.array([[1.7]]),
    2: np.array([[2.0, -0.6], [-0.6, 0.5]]),
    3: np.array([[1.5, 0.4, 0.1], [0.4, 0.8, -0.3], [0.1, -0.3, 2.0]]),
}
LABELS = np.array([1, 0, 1, 1, 0, 1])
REALS = np.array([0.3, -1.2, 2.5, 0.1, -0.4, 6.0])
COUNTS = np.array([0, 3, 1, 2, 0, 4])
LEVELS = np.array([0, 2, 1, 2, 0, 1])


def problem(dim, potential, cov=None, mean=0.0, **site):
    return LatentLinearModel(
        [GaussianFactor(mean, 1.0 if cov is None else cov, dim=dim), SiteFactor(ROWS[dim], potential, **site)]
    )


PROBLEMS = {
    "logit-1": problem(1, Logit(LABELS)),
    "logit-2-full": problem(2, Logit(LABELS), FULL[2], mean=[0.5, -1.0]),
    "logit-3": problem(3, Logit(LABELS), FULL[3]),
    "probit-1": problem(1, Probit(LABELS), FULL[1]),
    "probit-2-wide": problem(2, Probit(LABELS), 25.0),
    "laplace-2": problem(2, Laplace(REALS, 0.5)),
    "laplace-3-full": problem(3, Laplace(REALS, 2.0), FULL[3]),
    "student-2": problem(2, StudentT(4.0, REALS, 0.7)),
    "student-3": problem(3, StudentT(2.5, REALS, 1.0), FULL[3]),
    "cauchy-1": problem(1, Cauchy(REALS, 1.0)),
    "cauchy-2": problem(2, Cauchy(REALS, 0.5), FULL[2]),
    "poisson-2": problem(2, Poisson(COUNTS), 0.5),
    "poisson-3-offset": problem(3, Poisson(COUNTS), offset=np.linspace(-0.5, 0.5, 6)),
    "ordinal-2": problem(2, Ordinal(LEVELS, [-0.5, 0.7]), FULL[2]),
    "ordinal-logit-1": problem(1, Ordinal(LEVELS, [-1.0, 1.0], link="logit")),
    "logistic-2-weighted": problem(2, Logistic(REALS, 0.4), weight=np.array([1.0, 2.0, 0.5, 1.0, 0.0, 3.0])),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_bound_is_the_independent_optimum_and_below_log_z(name):
    model = PROBLEMS[name]
    post = infer(model, "gkl")
    assert post.converged
    assert post.evidence_kind == "lower bound"
    plain = PlainBound(model)
    here = plain.value(plain.at(post))
    assert post.log_evidence == pytest.approx(here, abs=1e-7)
    # the optimiser starts away from the answer, so that it can find a better one
    start = plain.at(post) + 0.1 * np.random.default_rng(0).standard_normal(len(plain.at(post)))
    assert plain.optimum(start) == pytest.approx(post.log_evidence, abs=1e-6)
    log_z, _, _ = brute_force(model, post)
    assert post.log_evidence <= log_z + 1e-6


def test_three_measurements_and_a_laplace_prior():
    generator = np.random.default_rng(3)
    rows, truth = generator.standard_normal((3, 20)), np.zeros(20)
    truth[[2, 11]] = 3.0, -2.0
    model = LatentLinearModel([GaussianFactor(rows @ truth, 0.01, H=rows), SiteFactor(None, Laplace(0.0, np.ones(20)))])
    post = infer(model, "gkl")
    assert post.converged
    assert np.abs(rows @ post.mean - rows @ truth).max() < 0.3
    assert np.all(post.variance > 0.01)


@pytest.mark.parametrize("measured", [True, False])
def test_rank_deficient_or_absent_gaussian_factors(measured):
    prior = SiteFactor(None, Laplace(0.0, [0.8, 1.5]))
    if measured:
        other = GaussianFactor([0.7], 0.2, H=[[1.0, -0.5]])
    else:
        other = SiteFactor([[1.0, -0.5], [0.3, 1.0], [1.0, 1.0]], Laplace([0.7, 1.0, -0.4], 0.6))
    model = LatentLinearModel([prior, other])
    post = infer(model, "gkl")
    plain = PlainBound(model)
    assert post.converged
    assert plain.optimum(plain.at(post) + 0.05) == pytest.approx(post.log_evidence, abs=1e-6)
    log_z, mean, _ = brute_force(model, post)
    assert post.log_evidence <= log_z + 1e-6
    assert log_z - post.log_evidence < 0.2
    assert np.abs(post.mean - mean).max() < 0.1
